"""Routes for operators. Not reachable from outside."""

from app import attempts, sessions


def routes(app):
    @app.get("/sessions")
    def list_sessions(request):
        return 200, sorted(name for name, _ in sessions.values())

    @app.delete("/attempts")
    def unlock(request):
        attempts.pop(request.json["name"], None)
        return 204, ""
