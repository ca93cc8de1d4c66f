"""HTTPS: certificates, their keys and passwords, and clients that verify them."""

from __future__ import annotations

import os
import socket
import ssl

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from ramet.lang import connect, program
from ramet.lang.base.errors import BackendError, UsageError
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.http.tls import open_tls
from ramet.runtime.testing.scripted_model import Script


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    """A certificate, its private key, and the certificate of who has signed it."""
    issued = authority.issue_cert("localhost", "127.0.0.1")
    certificate, key, ca = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    key.chmod(0o600)
    authority.cert_pem.write_to_path(str(ca))
    return certificate, key, ca


def encrypt(key, password: bytes) -> None:
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    form = serialization.PrivateFormat.PKCS8
    encryption = serialization.BestAvailableEncryption(password)
    key.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, form, encryption))


@program
def hello(s):
    s.user("hi")
    s.gen("answer", str, max_tokens=5)


def test_programs_and_clients_talk_https(serve, files):
    certificate, key, ca = files
    server = serve(["ok"], ssl_certfile=certificate, ssl_keyfile=key)
    url = server.url.replace("http://", "https://")
    assert httpx.get(f"{url}/health", verify=ssl.create_default_context(cafile=ca)).is_success
    for verify in (ca, str(ca), ssl.create_default_context(cafile=ca), False):
        assert hello.run(backend=connect(url, verify=verify))["answer"] == "ok"
    with pytest.raises(BackendError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(url)
    with pytest.raises(BackendError):
        connect(server.url)  # plain HTTP


def test_the_environment_may_name_trusted_certificates(serve, files, monkeypatch):
    certificate, key, ca = files
    server = serve(["ok"], ssl_certfile=certificate, ssl_keyfile=key)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    assert hello.run(backend=connect(server.url.replace("http:", "https:")))["answer"] == "ok"


def test_only_https_reads_trusted_certificates(serve, monkeypatch):
    server = serve(["ok"])
    monkeypatch.setattr(ssl, "create_default_context", lambda *_, **__: pytest.fail("read"))
    monkeypatch.setattr(httpx, "create_ssl_context", lambda *_, **__: pytest.fail("read"))
    assert hello.run(backend=connect(server.url))["answer"] == "ok"


def test_verification_by_a_file_without_certificates_is_refused(tmp_path):
    for name in ("absent.pem", "empty.pem"):
        (tmp_path / "empty.pem").write_text("")
        with pytest.raises(UsageError, match="no certificates can be read"):
            connect("https://localhost:1", verify=tmp_path / name)


def test_a_stream_over_tls_ends_with_its_client(serve, files, wait_until):
    certificate, key, ca = files
    endless = Script(["word "], repeat=True)
    server = serve(
        endless,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        model_options={"step_delay_s": 0.005},
    )
    context = ssl.create_default_context(cafile=ca)
    url = server.url.replace("http://", "https://")
    body = {"prompt": "x", "stream": True, "max_tokens": 3000}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, verify=context) as stream:
        next(stream.iter_bytes())
        assert server.num_live() == 1
    wait_until(lambda: server.num_live() == 0)


def test_what_is_not_tls_ends_its_own_connection_alone(serve, files):
    certificate, key, ca = files
    server = serve(["ok"], ssl_certfile=certificate, ssl_keyfile=key)
    with socket.create_connection(("127.0.0.1", server.http_server.port), timeout=20) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert not client.recv(100).startswith(b"HTTP")
    url = server.url.replace("http://", "https://")
    assert httpx.get(f"{url}/health", verify=ssl.create_default_context(cafile=ca)).is_success


def test_an_encrypted_key_needs_its_password(files, tmp_path):
    certificate, key, _ = files
    encrypt(key, b"secret")
    config = {"ssl_certfile": certificate, "ssl_keyfile": key}
    with pytest.raises(InvalidParameterError, match="is encrypted") as caught:
        open_tls(ServerConfig(**config))  # and doesn't wait for one from the terminal
    assert caught.value.param == "ssl_password_file"
    password = tmp_path / "password"
    password.write_text("secret\n")
    assert open_tls(ServerConfig(**config, ssl_password_file=password)) is not None
    password.write_text("wrong")
    with pytest.raises(InvalidParameterError, match="no certificate and private key"):
        open_tls(ServerConfig(**config, ssl_password_file=password))


def test_the_key_may_be_in_the_certificate_s_file(files):
    certificate, key, _ = files
    certificate.write_bytes(key.read_bytes() + certificate.read_bytes())
    assert open_tls(ServerConfig(ssl_certfile=certificate)) is not None


@pytest.mark.parametrize("name", ["ssl_certfile", "ssl_keyfile"])
def test_wrong_files_are_named(files, tmp_path, name):
    certificate, key, _ = files
    config = {"ssl_certfile": certificate, "ssl_keyfile": key}
    with pytest.raises(InvalidParameterError, match=rf"{name} .*absent.* can't be read"):
        open_tls(ServerConfig(**{**config, name: tmp_path / "absent"}))
    wrong = tmp_path / "wrong"
    wrong.write_text("no certificate")
    with pytest.raises(InvalidParameterError, match="no certificate and private key"):
        open_tls(ServerConfig(**{**config, name: wrong}))
    if hasattr(os, "geteuid"):
        config[name].chmod(0o666)
        with pytest.raises(InvalidParameterError, match="others may write"):
            open_tls(ServerConfig(**config))


def test_a_key_without_a_certificate_is_refused(tmp_path):
    with pytest.raises(InvalidParameterError, match="ssl_keyfile needs ssl_certfile"):
        ServerConfig(ssl_keyfile=tmp_path / "key")


def test_a_renewed_certificate_is_used_after_a_hangup(serve, files, authority, wait_until):
    certificate, key, ca = files
    server = serve(["ok"], ssl_certfile=certificate, ssl_keyfile=key)
    port = server.http_server.port

    def serial() -> bytes | None:
        context = ssl.create_default_context(cafile=ca)
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            return client.getpeercert(binary_form=True)

    before = serial()
    renewed = authority.issue_cert("localhost", "127.0.0.1")
    certificate.write_bytes(b"".join(part.bytes() for part in renewed.cert_chain_pems))
    key.write_bytes(renewed.private_key_pem.bytes())
    server.http_server.handle_hangup(1, None)
    wait_until(lambda: serial() != before)
