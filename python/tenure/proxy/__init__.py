"""`tenure-proxy`: one OpenAI endpoint in front of prefill engines (P) and decode engines (D).

Each completion is sent to a P and a D at the same time, under one transfer id; D pulls the KV that P computes, and D's answer is
the client's. Source: P/D spec, sections 4 and 8. Options, limits and errors: docs/reference/proxy.md. Needs the extra
`tenure[proxy]`; all of it runs on one event loop.
"""
