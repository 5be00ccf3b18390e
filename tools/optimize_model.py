"""Compiles a model and saves it: ``python3 tools/optimize_model.py -h``; equivalent to the command ``optimize_model``."""

from migraphx.optimize_model import main

if __name__ == "__main__":
    main()
