"""Trees and runs as one web page that needs no network and no build step.

`tree_data` and `run_data` turn stored values into JSON, `document` puts them into the page
of ``page/`` with the libraries of ``vendor/``. Nothing here reads a run.
"""
