"""What is in the store, in a browser? Pages over the store of runs that change nothing. Starlette, uvicorn and jinja2.

app.py      listens until Ctrl-C; addresses ► pages
guard.py    lets in only who may look, and says what a browser may do with a page
board.py    the newest run of each host, and its figures of the last nights, kept in memory
pages.py    what each page shows; charts.py draws with reports/html/svg.py; templates/ and static/ are how it looks
"""
