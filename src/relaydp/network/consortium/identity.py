"""Identities on the network: a key and a certificate for each party, pinned by the consortium file, over TLS 1.3 only.

There is no certificate authority. Each party makes its own key and a certificate that it signs itself; the consortium
file holds all certificates, and nothing else is trusted:

    a server    accepts the certificates of the parties, each of them and no other, and no caller without one
    a client    accepts one certificate: that of the party it calls
    a handler   asks `party_of` whose certificate it was: names inside certificates decide nothing

A pinned certificate must say that its key signs no certificates: CA:FALSE, and a key usage without keyCertSign. Without
the second, gRPC would accept any certificate signed by a trusted party's key, CA:FALSE or not, and only `party_of`
would detect it. A certificate expires after about two years; a new one changes the consortium file, and with it the
consortium's identity. The private key stays in its folder, readable by its owner only.

TLS 1.2 cannot be switched off in gRPC's Python interface, but its list of cipher suites can be set, and TLS 1.3 has a
list of its own. `require_tls13` leaves one 1.2 suite that needs a pre-shared key. Nobody has such a key, so a handshake
below 1.3 finds no common suite. gRPC reads the setting when it is first imported; the functions that make credentials
check that it was set in time, and `party_of` checks the version of each connection again.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from relaydp.errors import InputError, PrivacyError

if TYPE_CHECKING:
    import grpc

KEY, CERTIFICATE = "key.pem", "certificate.pem"
DAYS = 825  # how long a certificate lasts: a little over two years, the longest that browsers allowed
HEAD_START = datetime.timedelta(hours=1)  # a certificate is valid from an hour ago, since clocks may differ
LONGEST_NAME = 64  # X.509's limit for a common name
NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*")
SUITES, NEVER = "GRPC_SSL_CIPHER_SUITES", "ECDHE-PSK-AES128-CBC-SHA"
# The same key proves our identity in TLS handshakes. Data signed here begin with this prefix, handshakes never do.
PREFIX = b"relaydp signed data, version 1\x00"


@dataclass(frozen=True)
class Identity:
    """A party's own key and certificate. The certificate is public; the key does not appear in `repr`."""

    name: str
    key_pem: bytes = field(repr=False)
    certificate_pem: bytes
    fingerprint: str  # "sha256:" and 64 hex digits, of the certificate's DER form


# -- making and reading


def keygen(folder: str | Path, name: str, *, days: int = DAYS) -> Identity:
    """Make a key and a self-signed certificate for the party `name` in `folder`; return them.

    ECDSA on P-256. The folder is made for its owner alone (0700) where there is none, the key is 0600. Nothing is ever
    overwritten: a lost key cannot be made again.
    """
    folder = Path(folder)
    if len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        raise InputError(
            f"name={name!r} cannot be used in a certificate; a name has up to {LONGEST_NAME} letters, digits, hyphens "
            "and dots, with a letter at the start and after each dot. Choose another name."
        )
    if days < 1:
        raise InputError(f"days={days}; it must be 1 or more. Leave it out for {DAYS}.")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _self_signed(key, name, days)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = as_pem(certificate)
    _own_folder(folder)
    _write_new(folder / KEY, key_pem, 0o600)
    try:
        _write_new(folder / CERTIFICATE, pem, 0o644)
    except BaseException:
        (folder / KEY).unlink()  # made just now, and useless without its certificate
        raise
    return Identity(name, key_pem, pem, fingerprint(pem))


def read_identity(folder: str | Path) -> Identity:
    """The party's own key and certificate from `folder`, after checking that they are protected and valid today."""
    folder = Path(folder)
    key_pem, pem = _read(folder / KEY, secret=True), _read(folder / CERTIFICATE, secret=False)
    certificate = pinned(pem, str(folder / CERTIFICATE))
    if _private_key(key_pem, str(folder / KEY)).public_key() != certificate.public_key():
        raise InputError(
            f"{folder / KEY} does not fit {folder / CERTIFICATE}: they hold different keys. Restore the {KEY} that was "
            "made with this certificate, or make a new pair elsewhere with `relaydp agent keygen`."
        )
    now, renew = datetime.datetime.now(datetime.UTC), "make a new one with `relaydp agent keygen` and agree on it again"
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise InputError(f"{folder / CERTIFICATE} expired on {end:%Y-%m-%d %H:%M} UTC: {renew}.")
    if now < begin:
        raise InputError(
            f"{folder / CERTIFICATE} is valid from {begin:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M} now: "
            f"correct this machine's clock, or {renew}."
        )
    return Identity(name_in(certificate, str(folder / CERTIFICATE)), key_pem, as_pem(certificate), fingerprint(pem))


@lru_cache(maxsize=256)  # every call of a neighbour shows its certificate
def fingerprint(pem: str | bytes) -> str:
    """The identifier of a certificate: "sha256:" and 64 hex digits, the SHA-256 of its DER form.

    `openssl x509 -noout -fingerprint -sha256 -in certificate.pem` prints the same digits, with colons between.
    """
    return "sha256:" + hashlib.sha256(_certificate(pem).public_bytes(serialization.Encoding.DER)).hexdigest()


# -- gRPC


def require_tls13() -> None:
    """Restrict gRPC to TLS 1.3 in this process. Call it before grpc is first imported."""
    if os.environ.get(SUITES) == NEVER:
        return
    if "grpc" in sys.modules:
        raise PrivacyError(
            "grpc was imported before require_tls13() was called, so this process would also accept TLS 1.2; only TLS "
            "1.3 is allowed. Call relaydp.network.consortium.identity.require_tls13() before anything that imports "
            "grpc."
        )
    os.environ[SUITES] = NEVER


def server_credentials(identity: Identity, trusted_pems: Iterable[str | bytes]) -> grpc.ServerCredentials:
    """For a server that shows its own certificate and refuses every caller without a trusted one."""
    trusted = [as_pem(pinned(pem, "a trusted certificate")) for pem in trusted_pems]
    if not trusted:
        raise InputError("there is no trusted certificate. Pass the certificates of the consortium's parties.")
    require_tls13()
    import grpc

    pair = (identity.key_pem, identity.certificate_pem)
    return grpc.ssl_server_credentials([pair], root_certificates=b"".join(trusted), require_client_auth=True)


def channel_credentials(identity: Identity, peer_pem: str | bytes) -> grpc.ChannelCredentials:
    """For a channel to the one party that holds the key of `peer_pem`.

    The channel also needs the option ("grpc.ssl_target_name_override", its name): certificates carry parties' names,
    not addresses.
    """
    peer = as_pem(pinned(peer_pem, "the peer's certificate"))
    require_tls13()
    import grpc

    return grpc.ssl_channel_credentials(peer, identity.key_pem, identity.certificate_pem)


def party_of(auth_context: Mapping[str, Iterable[bytes]]) -> str:
    """The fingerprint of the certificate that the other side of a gRPC call has proved to hold the key of."""
    version, certificates = (list(auth_context.get(name, ())) for name in ("ssl_tls_version", "x509_pem_cert"))
    if version != [b"TLSv1.3"]:
        came = b", ".join(version).decode(errors="replace") or "no TLS"
        raise PrivacyError(
            f"a call came over {came}; it must be TLSv1.3. Call require_tls13() before grpc is imported."
        )
    if len(certificates) != 1:
        raise PrivacyError(
            f"a call came with {len(certificates)} certificates; it must have exactly one, the caller's. Serve with "
            "server_credentials."
        )
    return fingerprint(certificates[0])


# -- signatures


def sign(identity: Identity, data: bytes) -> bytes:
    """A signature of `data` that `check_signature` recognises: ECDSA with SHA-256, over `PREFIX` and the data.

    Two signatures of the same data differ, and a valid one can be turned into another: it says that the holder of the
    key signed this data, and its bytes do not identify anything.
    """
    key = _private_key(identity.key_pem, "the key of this identity")
    return key.sign(PREFIX + data, ec.ECDSA(hashes.SHA256()))


def check_signature(certificate_pem: str | bytes, data: bytes, signature: bytes) -> bool:
    """Whether the holder of the certificate's key signed `data`. Bytes that are not a signature give False."""
    key = pinned(certificate_pem, "the signer's certificate").public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)  # checked by `pinned`
    try:
        key.verify(signature, PREFIX + data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


# -- certificates


def _self_signed(key: ec.EllipticCurvePrivateKey, name: str, days: int) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - HEAD_START)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_signing_only(), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .sign(key, hashes.SHA256())
    )


def _signing_only() -> x509.KeyUsage:
    """The key signs handshakes and data, not certificates."""
    others = "content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign"
    others += " encipher_only decipher_only"
    return x509.KeyUsage(digital_signature=True, **dict.fromkeys(others.split(), False))


def _certificate(pem: str | bytes, what: str = "a certificate") -> x509.Certificate:
    """The one certificate in `pem`. A second one would be trusted without being checked."""
    try:
        found = x509.load_pem_x509_certificates(pem.encode() if isinstance(pem, str) else pem)
    except (ValueError, x509.InvalidVersion):
        found = []
    if len(found) != 1:
        raise InputError(
            f"{what} has {len(found) or 'no'} readable certificates; it must have exactly one in PEM form (-----BEGIN "
            f"CERTIFICATE-----). Use the whole of the party's {CERTIFICATE}."
        )
    return found[0]


def pinned(pem: str | bytes, what: str) -> x509.Certificate:
    """The certificate in `pem`, if trusting it means trusting one key on P-256 and nothing that it may have signed."""
    certificate = _certificate(pem, what)
    flaw = _flaw(certificate)
    if flaw:
        raise InputError(f"{what} {flaw}. Ask the party for a certificate made by `relaydp agent keygen`.")
    return certificate


def _flaw(certificate: x509.Certificate) -> str:
    """Why a certificate cannot be pinned; empty if it can."""
    try:
        if not _is_p256(certificate.public_key()):
            return "has a key that is not ECDSA on P-256"
        certificate.verify_directly_issued_by(certificate)
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
        if not authority and usage.digital_signature and not usage.key_cert_sign:
            return ""
    except InvalidSignature:
        return "is not signed by its own key"
    except x509.ExtensionNotFound:
        pass  # a missing extension allows everything
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        return f"is not a self-signed certificate that can be used ({error})"
    return "does not say that its key signs no certificates (CA:FALSE and the key usage digitalSignature alone)"


def _is_p256(key: object) -> bool:
    kinds = (ec.EllipticCurvePublicKey, ec.EllipticCurvePrivateKey)
    return isinstance(key, kinds) and isinstance(key.curve, ec.SECP256R1)


def name_in(certificate: x509.Certificate, what: str) -> str:
    """The party's name: the common name, which must be the alternative name too, where TLS looks for it."""
    common = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        others = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        others = []
    if len(common) != 1 or common != others:
        raise InputError(
            f"{what} names {common} and, as alternative DNS names, {others}; it must have one name, the same in both "
            "places. Make a certificate with `relaydp agent keygen`."
        )
    return common[0]


def as_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_key(pem: bytes, what: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):  # TypeError: it needs a password
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not _is_p256(key):
        raise InputError(
            f"{what} must be an unencrypted ECDSA key on P-256 in PEM form, and it is not. Restore the file that was "
            "made with the certificate."
        )
    return key


# -- files


def _own_folder(folder: Path) -> None:
    """Make `folder` for its owner only, or check that no other user could put another key there."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise InputError(f"{folder} is a file; the key needs a folder. Choose another path.") from None
        if os.name == "posix" and folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise InputError(
                f"{folder} can be written to by others (mode {stat.S_IMODE(folder.stat().st_mode):04o}), who could put "
                f"their own key there; only you may have write access. Run: chmod 700 {folder}"
            ) from None
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}. Choose a folder that you can write to.") from None


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a new file, never through a link, and never readable in between by more users than `mode` allows."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise InputError(
            f"{path} exists already, and a key that is overwritten is lost. Use the existing pair, or choose another "
            "folder."
        ) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}. Choose a folder that you can write to."
        ) from None
    with os.fdopen(handle, "wb") as file:
        if os.name == "posix":
            os.fchmod(file.fileno(), mode)  # whatever the umask
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path, *, secret: bool) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if secret and os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InputError(
                    f"{path} is open to other users than its owner (mode {stat.S_IMODE(mode):04o}); only you may be "
                    f"able to read it. Run: chmod 600 {path}  (and make a new key if somebody may have read it)"
                )
            return file.read()
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist; a key and its certificate must be in one folder. Make them with `relaydp agent "
            "keygen`, or choose the folder that has them."
        ) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}; the user of this process must be able to read it. Change its "
            "owner, or run as its owner."
        ) from None
