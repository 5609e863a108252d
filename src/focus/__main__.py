"""``python -m focus`` is the `focus` command."""

from focus.cli.main import app

__all__ = ()

if __name__ == "__main__":
    app(prog_name="focus")
