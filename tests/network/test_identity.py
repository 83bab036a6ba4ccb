"""Keys, certificates and signatures, and a real gRPC server that is called rightly and wrongly over loopback TLS.

gRPC reads its list of cipher suites when it is first imported. The calls are therefore made in a process of their own
(`python tests/network/test_identity.py`), which prints what came of each.
"""

import asyncio
import datetime
import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from relaydp.errors import InputError, PrivacyError
from relaydp.network.consortium import identity as tls

DAY = datetime.timedelta(days=1)
USES = "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign"
USES = [*USES.split(), "encipher_only", "decipher_only"]


def certify(name, key, *, issuer=None, begin=-DAY, end=DAY, ca=False, usage="signs", names=None):
    """A certificate made without `keygen`: its flaws are chosen. `issuer`: (name, key) of whoever signs it."""
    by, signing = issuer or (name, key)
    now = datetime.datetime.now(datetime.UTC)
    title = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, by)]
    builder = x509.CertificateBuilder().subject_name(title[0]).issuer_name(title[1]).public_key(key.public_key())
    builder = (
        builder.serial_number(x509.random_serial_number()).not_valid_before(now + begin).not_valid_after(now + end)
    )
    others = [x509.DNSName(each) for each in (names or [name])]
    builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if usage:
        may = dict.fromkeys(USES, False) | {"digital_signature": True, "key_cert_sign": usage == "vouches"}
        builder = builder.add_extension(x509.KeyUsage(**may), critical=True)
    return builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def new_key():
    return ec.generate_private_key(ec.SECP256R1())


def key_text(key):
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def made(name, key=None, **flaws):
    """An identity of chosen flaws, without files."""
    key = key or new_key()
    pem = certify(name, key, **flaws)
    return tls.Identity(name, key_text(key), pem, tls.fingerprint(pem))


def put(folder, key, pem):
    """A folder as `keygen` would leave it, with any key and certificate."""
    folder.mkdir(exist_ok=True)
    (folder / tls.KEY).write_bytes(key)
    (folder / tls.KEY).chmod(0o600)
    (folder / tls.CERTIFICATE).write_bytes(pem)
    return folder


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def north(tmp_path_factory):
    return tls.keygen(tmp_path_factory.mktemp("keys") / "north", "north")


# --- keys and certificates


def test_a_pair_is_made_for_its_owner_alone_and_read_back(tmp_path):
    folder = tmp_path / "deep" / "north"
    before = os.umask(0o000)  # the most careless one
    try:
        fresh = tls.keygen(folder, "north", days=30)
    finally:
        os.umask(before)
    assert (mode(folder), mode(folder / tls.KEY), mode(folder / tls.CERTIFICATE)) == (0o700, 0o600, 0o644)
    assert tls.read_identity(folder) == fresh
    certificate = x509.load_pem_x509_certificate(fresh.certificate_pem)
    assert fresh.name == "north" and certificate.subject.rfc4514_string() == "CN=north"
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert 29 * DAY < left <= 30 * DAY


def test_a_strict_umask_changes_nothing(tmp_path):
    before = os.umask(0o077)
    try:
        tls.keygen(tmp_path / "a", "north")
    finally:
        os.umask(before)
    assert [mode(tmp_path / "a" / name) for name in (tls.KEY, tls.CERTIFICATE)] == [0o600, 0o644]


def test_two_pairs_of_one_name_are_two_identities(tmp_path):
    one, two = (tls.keygen(tmp_path / each, "north") for each in "ab")
    assert one.fingerprint != two.fingerprint and one.key_pem != two.key_pem


@pytest.mark.parametrize("there", [tls.KEY, tls.CERTIFICATE])
def test_nothing_is_overwritten(tmp_path, there):
    (tmp_path / there).write_text("precious")
    with pytest.raises(InputError, match=f"{there} exists already"):
        tls.keygen(tmp_path, "north")
    assert [path.name for path in tmp_path.iterdir()] == [there]  # nothing half made beside it
    assert (tmp_path / there).read_text() == "precious"


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / tls.KEY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="exists already"):
        tls.keygen(tmp_path / "keys", "north")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_others_can_write_to_is_refused(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(InputError, match=f"chmod 700 {tmp_path / 'shared'}"):
        tls.keygen(tmp_path / "shared", "north")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        tls.keygen(tmp_path / "file", "north")


@pytest.mark.parametrize(
    "name", ["", "*", "*.north", "no rth", "10.0.0.1", "north.", "north..a", "-n", "n-", "ü", "n" * 65]
)
def test_names_that_tls_would_misread_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="cannot be used in a certificate"):
        tls.keygen(tmp_path / "keys", name)
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("name", ["n", "north", "North-2", "clinic.example.org", "n" * 64])
def test_names_that_are_taken(tmp_path, name):
    tls.keygen(tmp_path, name)
    assert tls.read_identity(tmp_path).name == name


def test_a_certificate_must_last(tmp_path):
    with pytest.raises(InputError, match="days=0"):
        tls.keygen(tmp_path, "north", days=0)


def test_the_key_is_in_no_repr(north):
    secret = north.key_pem.decode().splitlines()[1]
    assert secret not in repr(north) and "PRIVATE" not in repr(north)


def test_the_fingerprint_is_openssl_s(north, tmp_path):
    """The oracle is another program; without it, another library's reading of the same certificate."""
    (tmp_path / "c.pem").write_bytes(north.certificate_pem)
    digits = x509.load_pem_x509_certificate(north.certificate_pem).fingerprint(hashes.SHA256()).hex()
    if shutil.which("openssl"):
        command = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", str(tmp_path / "c.pem")]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert printed.strip().partition("=")[2].replace(":", "").lower() == digits
    assert north.fingerprint == tls.fingerprint(north.certificate_pem.decode()) == f"sha256:{digits}"


def test_the_fingerprint_is_of_the_certificate_not_of_its_text(north):
    text = "A remark.\r\n" + north.certificate_pem.decode().replace("\n", "\r\n") + "\r\n\r\n"
    assert tls.fingerprint(text) == north.fingerprint


@pytest.mark.parametrize("text", ["", "north", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_refused(text):
    with pytest.raises(InputError, match="no readable certificates"):
        tls.fingerprint(text)


def test_two_certificates_in_one_text_are_refused(north):
    """The second would be trusted without anybody having looked at it."""
    both = north.certificate_pem + made("evil").certificate_pem
    for look in (tls.fingerprint, lambda pem: tls.server_credentials(north, [pem])):
        with pytest.raises(InputError, match="has 2 readable certificates"):
            look(both)


# --- reading


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match=f"{tls.KEY} does not exist.*relaydp agent keygen"):
        tls.read_identity(tmp_path)
    put(tmp_path, key_text(new_key()), b"")
    (tmp_path / tls.CERTIFICATE).unlink()
    with pytest.raises(InputError, match=f"{tls.CERTIFICATE} does not exist"):
        tls.read_identity(tmp_path)


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o610, 0o644, 0o666])
def test_a_key_that_others_can_use_is_refused_with_the_cure(tmp_path, bits):
    tls.keygen(tmp_path / "keys", "north")
    key = tmp_path / "keys" / tls.KEY
    key.chmod(bits)
    with pytest.raises(InputError, match=f"mode {bits:04o}.*Run: chmod 600 {key}"):
        tls.read_identity(tmp_path / "keys")
    key.chmod(0o600)
    tls.read_identity(tmp_path / "keys")


def test_a_key_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(InputError, match="they hold different keys"):
        tls.read_identity(put(tmp_path, key_text(new_key()), certify("north", new_key())))


@pytest.mark.parametrize(
    ("begin", "end", "says"),
    [(-3 * DAY, -2 * DAY, r"expired on \d{4}-\d\d-\d\d"), (2 * DAY, 3 * DAY, r"is valid from \d{4}-\d\d-\d\d.*clock")],
)
def test_certificates_out_of_their_time_are_refused(tmp_path, begin, end, says):
    key = new_key()
    with pytest.raises(InputError, match=says):
        tls.read_identity(put(tmp_path, key_text(key), certify("north", key, begin=begin, end=end)))


def test_keys_of_other_kinds_are_refused(tmp_path):
    key = new_key()
    pem = certify("north", key)
    kind = serialization.PrivateFormat.PKCS8
    locked = key.private_bytes(serialization.Encoding.PEM, kind, serialization.BestAvailableEncryption(b"secret"))
    other = key_text(ec.generate_private_key(ec.SECP384R1()))
    for wrong in (b"", b"garbage", locked, other):
        with pytest.raises(InputError, match="must be an unencrypted ECDSA key on P-256"):
            tls.read_identity(put(tmp_path, wrong, pem))


def flawed():
    key = new_key()
    yield "CA:TRUE", certify("north", key, ca=True), "signs no certificates"
    yield "no basic constraints", certify("north", key, ca=None), "signs no certificates"
    yield "keyCertSign", certify("north", key, usage="vouches"), "signs no certificates"
    yield "no key usage", certify("north", key, usage=None), "signs no certificates"
    yield "signed by another", certify("north", key, issuer=("north", new_key())), "not signed by its own key"
    yield "issued by another", certify("north", key, issuer=("evil", new_key())), "not a self-signed certificate"
    yield "P-384", certify("north", ec.generate_private_key(ec.SECP384R1())), "a key that is not ECDSA on P-256"
    yield "RSA", certify("north", rsa.generate_private_key(65537, 2048)), "a key that is not ECDSA on P-256"


@pytest.mark.parametrize(("pem", "says"), [pytest.param(*rest, id=name) for name, *rest in flawed()])
def test_certificates_that_cannot_be_pinned_are_refused_everywhere(tmp_path, north, pem, says):
    for use in (
        lambda: tls.read_identity(put(tmp_path, key_text(new_key()), pem)),
        lambda: tls.server_credentials(north, [north.certificate_pem, pem]),
        lambda: tls.channel_credentials(north, pem),
        lambda: tls.check_signature(pem, b"data", b"signature"),
    ):
        with pytest.raises(InputError, match=says):
            use()


@pytest.mark.parametrize("names", [["south"], ["north", "south"]])
def test_a_certificate_has_one_name(tmp_path, names):
    key = new_key()
    with pytest.raises(InputError, match="one name, the same in both places"):
        tls.read_identity(put(tmp_path, key_text(key), certify("north", key, names=names)))


# --- signatures

SIGNERS = [made("north"), made("north")]
laws = settings(max_examples=50, deadline=None)


@laws
@given(data=st.binary(max_size=300))
def test_a_signature_is_recognised_and_no_other_key_s(data):
    signature = tls.sign(SIGNERS[0], data)
    assert tls.check_signature(SIGNERS[0].certificate_pem, data, signature)
    assert tls.check_signature(SIGNERS[0].certificate_pem.decode(), data, signature)
    assert not tls.check_signature(SIGNERS[1].certificate_pem, data, signature)


@laws
@given(data=st.binary(min_size=1, max_size=300), at=st.integers(0), bit=st.integers(0, 7))
def test_any_changed_bit_spoils_it(data, at, bit):
    signer = SIGNERS[0]
    signature = tls.sign(signer, data)

    def flipped(text):
        place = at % len(text)
        return text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :]

    assert not tls.check_signature(signer.certificate_pem, flipped(data), signature)
    assert not tls.check_signature(signer.certificate_pem, data, flipped(signature))
    for longer in (data + b"\0", b"\0" + data):
        assert not tls.check_signature(signer.certificate_pem, longer, signature)


@laws
@given(data=st.binary(max_size=50), garbage=st.binary(max_size=80), cut=st.integers(0, 60))
def test_what_is_no_signature_is_just_false(data, garbage, cut):
    pem = SIGNERS[0].certificate_pem
    signature = tls.sign(SIGNERS[0], data)
    assert not tls.check_signature(pem, data, garbage)
    assert not tls.check_signature(pem, data, signature[:cut])
    assert not tls.check_signature(pem, data, signature + b"\0")


def test_a_bare_signature_of_the_same_key_is_not_taken():
    """TLS handshakes are signed with the same key: such a signature must not pass for one of ours, nor ours for it."""
    key = new_key()
    signer = made("north", key)
    bare = key.sign(b"data", ec.ECDSA(hashes.SHA256()))
    key.public_key().verify(bare, b"data", ec.ECDSA(hashes.SHA256()))  # a good one, of the data alone
    assert not tls.check_signature(signer.certificate_pem, b"data", bare)
    assert not tls.PREFIX.startswith(b" ")  # TLS 1.3's texts begin with 64 spaces (RFC 8446, 4.4.3)


# --- who calls


def context(**changes):
    facts = {"ssl_tls_version": [b"TLSv1.3"], "x509_pem_cert": [SIGNERS[0].certificate_pem]}
    return {key: value for key, value in (facts | changes).items() if value is not None}


def test_the_caller_is_its_certificate():
    assert tls.party_of(context()) == SIGNERS[0].fingerprint


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ssl_tls_version": [b"TLSv1.2"]}, "over TLSv1.2; it must be TLSv1.3"),
        ({"ssl_tls_version": None}, "over no TLS"),
        ({"x509_pem_cert": None}, "with 0 certificates"),
        ({"x509_pem_cert": [each.certificate_pem for each in SIGNERS]}, "with 2 certificates"),
    ],
)
def test_callers_without_tls_13_or_a_certificate_are_refused(changes, says):
    with pytest.raises(PrivacyError, match=says):
        tls.party_of(context(**changes))


def test_a_server_needs_somebody_to_trust(north):
    with pytest.raises(InputError, match="no trusted certificate"):
        tls.server_credentials(north, [])


# --- over the wire: run as a program, this file makes the calls


async def call(port, credentials, name):
    """ "passed" and the server's answer, or the status that gRPC gives."""
    import grpc

    options = [("grpc.ssl_target_name_override", name), ("grpc.enable_retries", 0)]
    target = f"127.0.0.1:{port}"
    if credentials is None:
        channel = grpc.aio.insecure_channel(target)
    else:
        channel = grpc.aio.secure_channel(target, credentials, options=options)
    async with channel:
        try:
            return ["passed", (await channel.unary_unary("/test.Test/Who")(b"", timeout=300)).decode()]
        except grpc.aio.AioRpcError as error:
            return [error.code().name]


def handshake(port, folder, version):
    """What a client that speaks `version` alone gets: the first bytes of HTTP/2, or the kind of refusal."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.minimum_version = client.maximum_version = version
    client.load_verify_locations(folder / "north.pem")
    client.load_cert_chain(folder / "south" / tls.CERTIFICATE, folder / "south" / tls.KEY)
    client.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=300) as plain:
            with client.wrap_socket(plain, server_hostname="north") as wrapped:
                return "passed" if wrapped.recv(9) else "refused"
    except OSError:  # ssl.SSLError is one
        return "refused"


def openssl(port, folder, version):
    """The same, asked by another program."""
    where, south = ["-connect", f"127.0.0.1:{port}", "-CAfile", folder / "north.pem"], folder / "south"
    command = ["openssl", "s_client", version, "-alpn", "h2", *where, "-cert", south / tls.CERTIFICATE]
    command += ["-key", south / tls.KEY]
    told = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).stdout
    return "refused" if b"Cipher is (NONE)" in told else "passed"


async def serve(folder, strict):
    """Serve as "north", call it in every way, and print what came of it. Without `strict`: gRPC as it comes."""
    if strict:
        tls.require_tls13()
    import grpc

    north, south = (tls.keygen(folder / name, name) for name in ("north", "south"))
    (folder / "north.pem").write_bytes(north.certificate_pem)
    expired = made("old", begin=-3 * DAY, end=-2 * DAY)
    early = made("early", begin=2 * DAY, end=3 * DAY)
    key = new_key()
    vouched_pem = certify("mallory", key, issuer=("south", serialization.load_pem_private_key(south.key_pem, None)))
    vouched = tls.Identity("mallory", key_text(key), vouched_pem + south.certificate_pem, "")
    trusted = [south.certificate_pem, expired.certificate_pem.decode(), early.certificate_pem]
    reached = []

    async def who(_, about):
        reached.append(tls.party_of(about.auth_context()) if strict else "somebody")
        return json.dumps([reached[-1], about.auth_context()["ssl_tls_version"][0].decode()]).encode()

    server = grpc.aio.server()
    methods = {"Who": grpc.unary_unary_rpc_method_handler(who)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", methods),))
    pairs = [(north.key_pem, north.certificate_pem)]
    loose = grpc.ssl_server_credentials(pairs, south.certificate_pem, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", tls.server_credentials(north, trusted) if strict else loose)
    await server.start()
    found = {}
    for version in ("TLSv1_2", "TLSv1_3"):
        found[version] = await asyncio.to_thread(handshake, port, folder, getattr(ssl.TLSVersion, version))
        if shutil.which("openssl"):
            found["openssl " + version] = await asyncio.to_thread(
                openssl, port, folder, f"-{version.lower().replace('v', '')}"
            )
    if strict:
        own = north.certificate_pem
        callers = {"stranger": made("evil"), "same name": made("south"), "expired": expired, "early": early}
        for name, caller in (callers | {"vouched for": vouched}).items():
            found[name] = await call(port, tls.channel_credentials(caller, own), "north")
        found["no certificate"] = await call(port, grpc.ssl_channel_credentials(own), "north")
        found["no TLS"] = await call(port, None, "north")
        for name, other in {"other key": made("north"), "other party": made("west")}.items():
            credentials = tls.channel_credentials(south, other.certificate_pem)
            found[f"server with {name}"] = await call(port, credentials, other.name)
        found["server of other name"] = await call(port, tls.channel_credentials(south, own), "west")
        found["reached by the others"] = list(reached)
        found["good"] = await call(port, tls.channel_credentials(south, own.decode()), "north")
        found["south"] = south.fingerprint
    await server.stop(0)
    print(json.dumps(found))


def in_a_process(folder, how):
    """Warnings are errors there too; gRPC's own lines about refused handshakes are not what is asked for."""
    command = [sys.executable, "-W", "error", __file__, str(folder), how]
    quiet = os.environ | {"GRPC_VERBOSITY": "NONE"}
    quiet.pop(tls.SUITES, None)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, env=quiet)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return in_a_process(tmp_path_factory.mktemp("strict"), "strict")


def test_a_good_pair_talks_over_tls_13_and_is_known_by_its_certificate(calls):
    assert calls["good"] == ["passed", json.dumps([calls["south"], "TLSv1.3"])]


@pytest.mark.parametrize(
    "caller", ["stranger", "same name", "expired", "early", "vouched for", "no certificate", "no TLS"]
)
def test_a_server_turns_away(calls, caller):
    assert calls[caller] == ["UNAVAILABLE"]


@pytest.mark.parametrize("server", ["other key", "other party", "other name"])
def test_a_client_turns_away_a_server_that_is_not_the_one_it_means(calls, server):
    assert calls.get(f"server with {server}", calls.get(f"server of {server}")) == ["UNAVAILABLE"]


def test_no_refused_call_reaches_a_handler(calls):
    assert calls["reached by the others"] == []


def test_tls_12_is_refused_and_would_not_be_without_us(calls, tmp_path):
    loose = in_a_process(tmp_path, "loose")
    for asked in [name for name in calls if name.endswith("TLSv1_2")]:
        assert (calls[asked], loose[asked]) == ("refused", "passed")
    for asked in [name for name in calls if name.endswith("TLSv1_3")]:
        assert (calls[asked], loose[asked]) == ("passed", "passed")
    assert {"TLSv1_2", "TLSv1_3"} <= calls.keys()


def test_it_is_too_late_once_grpc_is_there():
    code = "import {}; from relaydp.network.consortium import identity as tls;"
    code += "tls.require_tls13(); tls.require_tls13(); print('set')"
    clean = {name: value for name, value in os.environ.items() if name != tls.SUITES}
    for first, says in (("os", "set"), ("grpc", "grpc was imported before require_tls13()")):
        ended = subprocess.run([sys.executable, "-c", code.format(first)], capture_output=True, text=True, env=clean)
        assert says in ended.stdout + ended.stderr and (ended.returncode == 0) == (first == "os")


def test_reading_a_key_does_not_load_grpc():
    code = "import sys; from relaydp.network.consortium import identity;"
    code += "print('grpc' in sys.modules, 'jax' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "False False"


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2] == "strict"))
