"""`python -m docs.paper`: write docs/paper.md."""

from docs.paper.page import PAGE, page

if __name__ == "__main__":
    PAGE.write_text(page())
