"""`python -m engine.core`."""

from engine.core.process import end_without_cleanup, main

if __name__ == "__main__":
    end_without_cleanup(main())
