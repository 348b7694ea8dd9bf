from . import interrupts

interrupts.while_loading()

from .cli import main  # noqa: E402

main()
