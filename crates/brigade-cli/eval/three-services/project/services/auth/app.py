"""Logs users in and out, and keeps their sessions."""

import os

SESSION_HOURS = int(os.environ.get("AUTH_SESSION_HOURS", "12"))
MAX_ATTEMPTS = int(os.environ.get("AUTH_MAX_ATTEMPTS", "5"))

attempts = {}
sessions = {}


def login(app, users):
    @app.post("/login")
    def _login(request):
        name = request.json["name"]
        if attempts.get(name, 0) >= MAX_ATTEMPTS:
            return 429, "too many attempts"
        if not users.check(name, request.json["password"]):
            attempts[name] = attempts.get(name, 0) + 1
            return 401, "wrong name or password"
        attempts.pop(name, None)
        sessions[request.id] = (name, SESSION_HOURS)
        return 200, request.id


def logout(app):
    @app.post("/logout")
    def _logout(request):
        sessions.pop(request.token, None)
        return 204, ""
