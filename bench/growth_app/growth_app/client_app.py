"""What Flower asks of every app; the clients of this one are in `bench.flower_nodes`."""

from nestegg.flower import private_client_app

app = private_client_app()
