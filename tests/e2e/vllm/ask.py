"""A vLLM engine as a process of its own, driven line by line over its standard input and output.

    ask.py MODEL CONNECTOR OPTIONS ARGUMENTS        (JSON: connector options, keyword arguments of Engine)

Each line in is {"prompts": [[token, ...], ...], "forget": bool}; each line out that begins with "answer " is a JSON list of
[tokens, first logprob, cached], one a prompt. Ends with its input.
"""

import json
import sys

from engine import Engine

if __name__ == "__main__":
    model, connector, options, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
    engine = Engine(model, options, connector=connector, **arguments)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("forget"):
            engine.forget_local()
        answers = engine.ask(*order["prompts"])
        answers = answers if isinstance(answers, list) else [answers]
        print("answer " + json.dumps([[a.tokens, a.logprobs[0], a.cached] for a in answers]), flush=True)
    engine.close()
