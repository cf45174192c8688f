"""Configurations of cells: the paper's setting to the letter, and what smaller scales change."""

from __future__ import annotations

import math

import pytest

from nestegg.configuration.config import Adaptive, Config, FederationTable, GroupTable, Model, Privacy, Side, Training
from nestegg.experiments.cells import hash_of
from nestegg.experiments.definition import load, names
from nestegg.experiments.scales import scaled, stated_reduction
from nestegg.experiments.settings import Hyperparameters
from tests.experiments.made import config_of


def test_the_main_table_is_the_papers_setting_to_the_letter() -> None:
    fmnist, mnist, adult = (config_of("table-accuracy", row, "ours", "full") for row in range(3))
    for config, clients, epochs, batch, rate in ((fmnist, 100, 30, 125, 0.001), (adult, 80, 5, 32, 0.01)):
        assert config.federation.clients == clients
        assert config.federation.samples_per_client is None
        assert (config.federation.partition, config.federation.dirichlet) == ("dirichlet", 0.1)
        training = config.training
        assert (training.rounds, training.local_epochs, training.batch_size) == (25, epochs, batch)
        assert (training.learning_rate, training.momentum, training.schedule) == (rate, 0.9, "cosine")
        privacy = config.privacy
        assert (privacy.spending_rate, privacy.clip_norm, privacy.delta) == (0.9, 250, 1e-5)
        assert (privacy.clipping, privacy.clip_unit, privacy.composition) == ("per-layer", "gradient", "paper")
        assert [group.share for group in privacy.groups] == [0.34, 0.43, 0.23]
        assert [group.transition for group in privacy.groups] == [13] * 3
    assert [group.epsilon for group in mnist.privacy.groups] == [10, 15, 20]
    assert [group.saving_rate for group in fmnist.privacy.groups] == [0.5, 0.6, 0.7]
    assert [group.saving_rate for group in adult.privacy.groups] == [0.6, 0.7, 0.8]


@pytest.mark.parametrize("name", names())
def test_cpu_scale_changes_only_what_it_states(name: str) -> None:
    experiment = load(name)
    for row in experiment.shown_rows():
        for column in experiment.columns:
            setting = experiment.cell(row, column)
            small, samples = scaled(setting, "cpu")
            kept = ("method", "dataset", "clients", "rounds", "epsilon", "saving_rate", "transition", "spending_rate")
            assert all(getattr(small, key) == getattr(setting, key) for key in kept)
            stretch = small.learning_rate / setting.learning_rate if setting.clip_unit == "gradient" else 1.0
            assert math.isclose(small.clip_norm * stretch, setting.clip_norm, rel_tol=2e-3)
            sentence = stated_reduction(setting, "cpu")
            if samples is None:
                assert small == setting
                assert "nothing is reduced" in sentence
            else:
                steps = math.ceil(samples / small.batch_size) * small.local_epochs
                images = {"mnist": 60_000, "fashion-mnist": 60_000, "cifar10": 50_000}[setting.dataset]
                theirs = math.ceil(images / setting.clients / setting.batch_size) * setting.local_epochs
                assert math.isclose(steps * small.learning_rate, theirs * setting.learning_rate, rel_tol=2e-3)
                times = f"{small.learning_rate / setting.learning_rate:.4g} times"
                for number in (samples, small.batch_size, f"{small.learning_rate:g}", f"λ {times} larger"):
                    assert str(number) in sentence
                assert (f"c {times} smaller" in sentence) == (setting.clip_unit == "gradient")


def test_cells_that_train_the_same_are_the_same() -> None:
    def hashes(column: str, *rows: tuple[str, int]) -> set[str]:
        return {hash_of(config_of(name, row, column, "cpu")) for name, row in rows}

    assert len(hashes("dp-fedavg", ("table-accuracy", 0), ("table-strict-uniform", 0))) == 1
    assert len(hashes("fedavg", ("table-accuracy", 0), ("table-saving-rates", 4), ("table-transitions", 5))) == 1
    assert len(hashes("idp-fedavg", ("table-accuracy", 0), ("table-transitions", 4), ("table-transitions", 5))) == 1
    assert len(hashes("ours", ("table-transitions", 4), ("table-transitions", 5))) == 2
    assert config_of("table-accuracy", scale="cpu").model.name == "cnn"  # a hash knows the network
    assert hashes("exact", ("table-accuracy", 0)) != hashes("exact-pld", ("table-accuracy", 0))


def test_a_files_words_are_those_of_a_configuration() -> None:
    sections = (Config, FederationTable, Model, Training, Privacy, GroupTable, Adaptive, Side)
    assert {*Hyperparameters.model_fields} <= {word for section in sections for word in section.model_fields}


def test_a_day_takes_all_images_and_keeps_how_far_clients_go() -> None:
    stated, day = (config_of("table-accuracy", 0, "ours", scale) for scale in ("full", "day"))
    assert day.federation == stated.federation
    assert (day.training.local_epochs, day.training.batch_size) == (1, stated.training.batch_size)
    rates, ways = [one.training.learning_rate for one in (stated, day)], []
    for rate, steps in zip(rates, (150, 5), strict=True):
        speed = way = 0.0
        for _ in range(steps):  # as torch.optim.SGD moves a weight with gradient 1
            speed = 0.9 * speed + 1.0
            way += rate * speed
        ways.append(way)
    assert ways[1] == pytest.approx(ways[0], rel=1e-3)
    assert day.privacy.clip_norm * rates[1] == pytest.approx(stated.privacy.clip_norm * rates[0], rel=1e-3)
    experiment = load("table-accuracy")
    said = stated_reduction(experiment.cell(experiment.rows[0], experiment.columns[0]), "day")
    assert said.startswith("all training images; 1 local epoch in batches of 125 instead of 30 in batches of 125")


def test_a_model_of_our_own_choice_is_the_same_at_every_scale_but_one() -> None:
    small, full = (config_of("when-to-spend", 0, "optimal", scale) for scale in ("cpu", "full"))
    assert small == full
    assert (small.model.name, small.model.features) == ("softmax", "oriented-gradients")
    assert (small.federation.validation, small.federation.tested_on) == (5000, "test")
    assert config_of("when-to-spend", 0, "optimal-two", "cpu").privacy.influence is None
    assert config_of("when-to-spend", 0, "optimal-full", "cpu").privacy.accountant == "gaussian"
    tried = config_of("when-to-spend-tuning", 0, "x0.5", "cpu")
    assert (tried.federation.tested_on, tried.privacy.clip_norm) == ("validation", 12.0)
