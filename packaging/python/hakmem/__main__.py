"""`hakmem` and `python -m hakmem`: hak, as `hakmem run -- python app.py`."""

import os
import sys
from pathlib import Path


def main():
    hak = Path(__file__).resolve().parent / "tree" / "bin" / "hak"
    os.execv(hak, [str(hak), *sys.argv[1:]])


if __name__ == "__main__":
    main()
