"""`kraftpy completion`: what a shell must read to complete commands and options."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    bash and zsh: eval "$(kraftpy completion bash)" in .bashrc or .zshrc; fish: kraftpy completion
    fish > ~/.config/fish/completions/kraftpy.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    click.echo(kind(root, {}, "kraftpy", "_KRAFTPY_COMPLETE").source())
