"""Apache Kafka's own metadata log: its records, whatever release wrote them."""

from kraftpy.audit.kafka.decoding import UnknownRecord, decode_value
from kraftpy.audit.kafka.schema import SCHEMAS

__all__ = ["SCHEMAS", "UnknownRecord", "decode_value"]
