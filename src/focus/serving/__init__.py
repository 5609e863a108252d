"""A local inference server: the embedded engine behind SGLang's protocol.

Starlette and uvicorn come with the extra ``serve``; nothing here is imported by the library
itself.
"""
