"""Compile a model and save it for later: ``python3 tools/optimize_model.py -h``; the same as the command ``optimize_model``."""

from migraphx.optimize_model import main

if __name__ == "__main__":
    main()
