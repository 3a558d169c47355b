"""`python -m isthmus`: the command `isthmus`."""

from isthmus.console.main import main

if __name__ == "__main__":
    main()
