"""Who a server is: certificates that nobody trusts, the user's authorities, IPv6, credentials."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import socket
import ssl
import traceback
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from focus.errors import FatalError
from focus.policies.http import HttpServer

from .loopback import Answer, Ask, Loopback

pytestmark = pytest.mark.anyio

KEY = "canary-7f3a"
NOW = datetime.datetime.now(datetime.UTC)


def named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


class Authority:
    """Signs certificates; `path` holds its own, as PEM."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.path = folder / "authority.pem"
        certificate = self._signed("authority", self._key, x509.BasicConstraints(True, None))
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def tls(self, *hosts: str, ends: datetime.datetime | None = None) -> ssl.SSLContext:
        """A server's side, for these addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(
            "server",
            key,
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(h)) for h in hosts]),
            ends=ends,
        )
        path = self._folder / "server.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _signed(
        self,
        subject: str,
        key: ec.EllipticCurvePrivateKey,
        extension: x509.ExtensionType,
        *,
        ends: datetime.datetime | None = None,
    ) -> x509.Certificate:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - datetime.timedelta(days=2))
            .not_valid_after(ends or NOW + datetime.timedelta(days=1))
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, hashes.SHA256())
        )


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Not trusted yet, whatever the environment of the tests says."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    return Authority(tmp_path)


async def echo(ask: Ask) -> Answer:
    """What arrived, as the answer; under /refuse with a status that is an error."""
    body = {"host": ask.headers["host"], "authorization": ask.headers.get("authorization")}
    return Answer.of(body, 403 if ask.path == "/refuse" else 200)


async def refusal(loopback: Loopback, **options: Any) -> FatalError:
    """The error of a request that must not get through; nothing of it has arrived."""
    server = HttpServer(loopback.url, **options)
    with pytest.raises(FatalError) as caught:
        await server.post("/x", {"prompt": "mine"})
    await server.aclose()
    assert loopback.asks == []
    return caught.value


def shown(error: FatalError) -> str:
    """All that a report may print of it, locals of FOCUS included, those of the test not."""
    assert error.__traceback__ is not None
    inner = error.with_traceback(error.__traceback__.tb_next)
    return "".join(traceback.TracebackException.from_exception(inner, capture_locals=True).format())


async def test_an_unknown_certificate_is_refused_before_anything_is_sent(
    authority: Authority,
) -> None:
    async with Loopback(echo, tls=authority.tls("127.0.0.1")) as loopback:
        error = await refusal(loopback, api_key=KEY)
        assert f"POST {loopback.url}/x" in str(error)
        assert "certificate" in str(error)
        assert "SSL_CERT_FILE" in str(error)
        assert KEY not in shown(error)


async def test_a_borrowed_client_refuses_it_with_the_same_error(authority: Authority) -> None:
    async with (
        Loopback(echo, tls=authority.tls("127.0.0.1")) as loopback,
        httpx.AsyncClient() as client,
    ):
        assert "SSL_CERT_FILE" in str(await refusal(loopback, client=client))


async def test_the_authority_that_the_user_trusts_is_accepted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    async with Loopback(echo, tls=authority.tls("127.0.0.1")) as loopback:
        server = HttpServer(loopback.url, api_key=KEY)
        for _ in range(2):
            answer = await server.post("/x", {"a": 1})
            assert answer["authorization"] == f"Bearer {KEY}"
        assert loopback.connections == 1
        await server.aclose()


@pytest.mark.parametrize("name", ["missing.pem", "empty.pem"])
async def test_a_file_without_authorities_is_named(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "empty.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
    async with Loopback(echo, tls=authority.tls("127.0.0.1")) as loopback:
        error = await refusal(loopback, api_key=KEY)
        assert f"SSL_CERT_FILE='{tmp_path / name}'" in str(error)
        assert KEY not in shown(error)


WRONG: Sequence[tuple[str, int, str]] = [("192.0.2.1", 1, "mismatch"), ("127.0.0.1", -1, "expired")]


@pytest.mark.parametrize(("host", "days_left", "why"), WRONG)
async def test_a_trusted_authority_does_not_vouch_for_another_host_or_time(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, host: str, days_left: int, why: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    ends = NOW + datetime.timedelta(days=days_left)
    async with Loopback(echo, tls=authority.tls(host, ends=ends)) as loopback:
        assert why in str(await refusal(loopback))


def has_ipv6() -> bool:
    try:
        with closing(socket.socket(socket.AF_INET6)) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
async def test_a_server_at_an_ipv6_address_is_reached_and_named_in_brackets(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, is_secure: bool
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    tls = authority.tls("::1") if is_secure else None
    async with Loopback(echo, host="::1", tls=tls) as loopback:
        server = HttpServer(loopback.url)
        assert (await server.post("/x", {"a": 1}))["host"] == f"[::1]:{loopback.port}"
        with pytest.raises(FatalError, match=rf"http.*://\[::1\]:{loopback.port}/refuse"):
            await server.get("/refuse")
        await server.aclose()


PAIRS = {
    "plain": ("me", KEY, f"me:{KEY}"),
    "escaped": ("me%40here", f"{KEY}%3A%2F%C3%A9", f"me@here:{KEY}:/é"),
    "no user": ("", KEY, f":{KEY}"),
}


@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize(("user", "password", "sent"), PAIRS.values(), ids=list(PAIRS))
async def test_user_and_password_arrive_unescaped_and_are_shown_nowhere(
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    is_secure: bool,
    user: str,
    password: str,
    sent: str,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    tls = authority.tls("127.0.0.1") if is_secure else None
    async with Loopback(echo, tls=tls) as loopback:
        server = HttpServer(loopback.url.replace("//", f"//{user}:{password}@"))
        header = (await server.get("/x"))["authorization"]
        kind, coded = header.split(" ")
        assert (kind, base64.b64decode(coded).decode()) == ("Basic", sent)
        with pytest.raises(FatalError) as caught:
            await server.get("/refuse")
        text = shown(caught.value) + repr(server) + server.url
        assert KEY not in text
        assert coded not in text
        await server.aclose()
