"""Measurements, side by side with a plain baseline in the same run."""
