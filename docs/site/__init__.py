"""The site of the pages, with a reference made from the code: `python -m docs.site OUT`."""
