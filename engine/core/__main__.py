"""`python -m engine.core`."""

from engine.core.process import main
from engine.process_end import end_without_cleanup

if __name__ == "__main__":
    end_without_cleanup(main())
