"""Pipeline parallel engines on CPUs: vLLM 0.32 allocates what a later stage receives only when it warms up, which eager CPU engines skip."""


def allocate_stage_input(worker):
    """Runs a worker's model once on nothing; runs in its process, and in all of its engine's at the same time."""
    worker.model_runner.profile_run()
