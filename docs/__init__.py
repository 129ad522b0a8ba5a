"""The pages, and the programs that write parts of them from the code: `make docs`."""
