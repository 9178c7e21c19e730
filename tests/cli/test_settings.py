"""Settings come in layers, and a wrong one is named with its place and what is allowed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fencepost.settings import OWNED_CLIENT_PROPERTIES, PROFILES, Settings, SettingsError


def load(tmp_path: Path, text: str = "", env: dict[str, str] | None = None, **overrides: object) -> Settings:
    path = tmp_path / "my.toml"
    path.write_text(text)
    return Settings.load([path], env or {}, overrides)


def test_without_anything_the_shipped_defaults_are_those_of_the_class() -> None:
    assert Settings.load([], {}) == Settings()


def test_each_layer_goes_before_the_one_below(tmp_path: Path) -> None:
    text = "[worker]\nslots = 1\nlanes = 1\nqueue_limit = 1"
    settings = load(tmp_path, text, {"FENCEPOST_SLOTS": "2", "FENCEPOST_LANES": "2"}, slots=3)
    assert (settings.slots, settings.lanes, settings.queue_limit) == (3, 2, 1)


def test_later_files_go_before_earlier_ones(tmp_path: Path) -> None:
    for name, slots in (("a.toml", 1), ("b.toml", 2)):
        (tmp_path / name).write_text(f"[worker]\nslots = {slots}")
    assert Settings.load([tmp_path / "a.toml", tmp_path / "b.toml"], {}).slots == 2


def test_the_files_of_the_working_directory_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "x.toml").write_text('[namespace]\nname = "here"')
    monkeypatch.chdir(tmp_path)
    assert Settings.load(env={}).namespace == "here"
    (tmp_path / "other.toml").write_text('[namespace]\nname = "named"')
    assert Settings.load(env={"FENCEPOST_CONFIG": "other.toml"}).namespace == "named"


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_sets_its_numbers_and_each_can_be_set_by_itself(tmp_path: Path, name: str) -> None:
    settings = load(tmp_path, f'[profile]\nname = "{name}"')
    assert {key: getattr(settings, key) for key in PROFILES[name]} == dict(PROFILES[name])
    changed = load(tmp_path, f'[profile]\nname = "{name}"\ntransaction_timeout_s = 7', session_timeout_s=9)
    assert (changed.transaction_timeout_s, changed.session_timeout_s) == (7.0, 9.0)
    assert changed.lease_ttl_s == PROFILES[name]["lease_ttl_s"]


def test_a_profile_named_in_a_later_layer_takes_the_numbers_with_it(tmp_path: Path) -> None:
    settings = load(tmp_path, '[profile]\nname = "standard"', {"FENCEPOST_PROFILE": "quick"})
    assert settings.lease_ttl_s == PROFILES["quick"]["lease_ttl_s"]


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_outlives_its_margins(name: str) -> None:
    numbers = PROFILES[name]
    settings = Settings(profile=name, **numbers)
    # The guard ends runs 0.3 s before the deadline; a renewal must have had two chances by then.
    assert settings.lease_ttl_s - settings.margin_s - 0.3 > 2 * settings.renewal_s
    assert settings.heartbeat_s * 3 < settings.session_timeout_s


def test_client_properties_pass_through_from_every_layer(tmp_path: Path) -> None:
    text = '[kafka.client]\n"sasl.username" = "u"\nssl.ca.location = "/ca"\n"socket.nagle.disable" = true'
    settings = load(tmp_path, text, {"FENCEPOST_KAFKA_CLIENT_SASL_PASSWORD": "p"}, client={"statistics.interval.ms": 5})
    assert settings.client == {
        "sasl.username": "u",
        "ssl.ca.location": "/ca",
        "socket.nagle.disable": "true",
        "sasl.password": "p",
        "statistics.interval.ms": "5",
    }


def test_secrets_show_in_no_representation_and_no_error(tmp_path: Path) -> None:
    settings = load(tmp_path, '[kafka.client]\n"sasl.password" = "hunter2"')
    assert "hunter2" not in repr(settings) + str(settings)
    assert "sasl.password" in repr(settings)
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, '[kafka.client]\n"sasl.password" = ["hunter2"]')
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", OWNED_CLIENT_PROPERTIES)
def test_a_property_that_is_not_the_users_to_set_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=rf"kafka\.client\.{name} in .*my\.toml cannot be set"):
        load(tmp_path, f'[kafka.client]\n"{name}" = "x"')
    with pytest.raises(SettingsError, match="cannot be set"):
        Settings(client={name: "x"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[worker]\nslot = 1",
            r"unknown setting worker\.slot in .*my\.toml \(did you mean worker\.slots\?\); allowed: ",
        ),
        ("[wroker]\nslots = 1", r"unknown setting wroker .*allowed: .*\[worker\]"),
        ("slots = 1", r"unknown setting slots .*allowed: \[call\], \[fence\], \[kafka\]"),
        ("[worker]\nslots = 0", r"worker\.slots in .*my\.toml is 0; allowed: a whole number from 1 to 100000"),
        ("[worker]\nslots = 1.5", r"worker\.slots .* is 1\.5; allowed: a whole number"),
        ("[worker]\nslots = true", r"worker\.slots .* is True; allowed: a whole number"),
        ('[profile]\nname = "fast"', r"profile\.name .* allowed: one of standard, swift, quick"),
        ("[profile]\nlease_ttl_s = nan", r"profile\.lease_ttl_s .* allowed: a number from 1 to"),
        ('[profile]\ngroup_protocol = "x"', "allowed: one of auto, classic, consumer"),
        ('[namespace]\nname = "a b"', r"namespace\.name .* allowed: 1 to 200 letters"),
        ('[namespace]\nname = ".."', "allowed: a name other than"),
        ('[worker]\napp = "shop"', "allowed: module:attribute"),
        ('[worker]\ncommands = ["../rm"]', "allowed: a list of absolute paths"),
        ('[worker]\nkeep_env = ["A B"]', "allowed: a list of names of variables"),
        ('[worker]\nstrict_stop = "maybe"', "allowed: auto, true or false"),
        ('[worker]\ncontainment = "none"', "allowed: one of auto, process-groups"),
        ("[worker]\nuid = -1", "allowed: a whole number from 0"),
        ('[worker]\nlogs = "maybe"', "allowed: true or false"),
        ('[kafka]\nbootstrap = ""', "allowed: a text that is not empty"),
        ("[profile]\nmargin_s = 30", r"profile\.margin_s is 30; allowed: less than profile\.lease_ttl_s"),
        ("[profile]\nrenewal_s = 26", r"profile\.renewal_s is 26; allowed: less than"),
        ('[call]\nhosts = ["http://a"]', r"call\.hosts .* allowed: a list of hosts, such as api\.example\.com"),
        ('[call]\nhosts = ["a:b"]', "allowed: a list of hosts"),
        ('[call]\nca_file = ""', "allowed: a text that is not empty"),
        ("[worker", "is not valid TOML"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(tmp_path, text)


def test_a_wrong_variable_or_argument_is_named() -> None:
    with pytest.raises(SettingsError, match=r"worker\.slots in variable FENCEPOST_SLOTS is 'many'"):
        Settings.load([], {"FENCEPOST_SLOTS": "many"})
    with pytest.raises(SettingsError, match=r"did you mean FENCEPOST_SLOTS\?"):
        Settings.load([], {"FENCEPOST_SLOT": "4"})
    with pytest.raises(SettingsError, match=r"worker\.slots in argument slots is -1"):
        Settings.load([], {}, {"slots": -1})
    with pytest.raises(SettingsError, match="unknown setting nonsense in the arguments; allowed: client, namespace"):
        Settings.load([], {}, {"nonsense": 1})


def test_variables_that_others_set_under_our_prefix_are_left_alone() -> None:
    # A Kubernetes service named fencepost does this to every pod beside it.
    env = {"FENCEPOST_PORT": "tcp://10.0.0.1:80", "FENCEPOST_SERVICE_HOST": "10.0.0.1", "FENCEPOST_KAFKA_HOME": "/k"}
    assert Settings.load([], env) == Settings()


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingsError, match=r"cannot read the settings file /nowhere\.toml: No such file"):
        Settings.load(["/nowhere.toml"], {})


def test_lists_and_flags_come_from_variables_too() -> None:
    settings = Settings.load([], {"FENCEPOST_COMMANDS": "/bin/true:/bin/false", "FENCEPOST_LOGS": "off"})
    assert settings.commands == ("/bin/true", "/bin/false")
    assert settings.logs is False


def test_a_pool_is_a_namespace_below_its_namespace(tmp_path: Path) -> None:
    assert load(tmp_path, '[namespace]\nname = "shop"\npool = "gpu"').namespace == "shop.pool-gpu"
    assert Settings.load([], {"FENCEPOST_POOL": "big"}, {"namespace": "shop"}).namespace == "shop.pool-big"
    assert load(tmp_path, "", pool="gpu").group == "fencepost.pool-gpu"
    with pytest.raises(SettingsError, match=r"namespace\.pool in argument pool is 'GPU'; allowed: 1 to 63 small"):
        load(tmp_path, "", pool="GPU")


def test_hosts_that_may_be_called_come_from_every_layer(tmp_path: Path) -> None:
    hosts = ("api.example.com", "*.example.com:8443", "*", "[::1]:8080", "a:*")
    assert load(tmp_path, f"[call]\nhosts = {list(hosts)}").call_hosts == hosts
    assert Settings.load([], {"FENCEPOST_CALL_HOSTS": ", ".join(hosts)}).call_hosts == hosts
    assert load(tmp_path, '[call]\nhosts = ["a"]', call_hosts=["b"]).call_hosts == ("b",)


def test_the_handover_limit_ends_with_the_session_under_the_classic_protocol() -> None:
    settings = Settings(session_timeout_s=10, handover_limit_s=60)
    assert (settings.handover_limit("consumer"), settings.handover_limit("classic")) == (60, 10)


def test_settings_go_to_another_process_and_back() -> None:
    settings = Settings(client={"sasl.password": "p"}, commands=("/bin/true",))
    assert pickle.loads(pickle.dumps(settings)) == settings
