"""multipart/form-data -> the files in it, in memory: the file system may be read-only."""

from collections.abc import AsyncGenerator

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from service.web.problems import ProblemError

FIELD = "files"
EXPECTED = f"one or more files in fields named '{FIELD}'"


class _InMemory(MultiPartParser):
    spool_max_size = 2**62


async def files_of(headers: Headers, body: bytes, max_files: int) -> list[bytes]:
    """The files of the form, in order; refuses damaged forms (400), other fields (422) and too many files (413)."""
    try:
        form = await _InMemory(headers, _stream(body), max_files=max_files + 1, max_fields=max_files + 1).parse()
    except (MultiPartException, KeyError) as error:
        message = getattr(error, "message", str(error))
        if "Too many" in message:
            detail = f"The form has more than {max_files} parts."
            raise ProblemError(413, "input_too_large", detail, expected=f"at most {max_files} files") from None
        raise ProblemError(400, "multipart", f"The body is no valid form: {message:.150}.") from None
    files = []
    try:
        for name, part in form.multi_items():
            if name != FIELD or not isinstance(part, UploadFile):
                detail = f"Found the form field {name!r:.50}, expected {EXPECTED}."
                raise ProblemError(422, "field", detail, field=name[:50], expected=EXPECTED)
            files.append(await part.read())
    finally:
        await form.close()
    if not files:
        raise ProblemError(422, "field", f"Found an empty form, expected {EXPECTED}.", field=FIELD, expected=EXPECTED)
    return files


async def _stream(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body
    yield b""
