#!/bin/sh
# Writes a home for a tenant: scripts/add-tenant.sh NAME
# It stands in ${TENANTS:-./tenants}/NAME. Nobody but its owner can read it. docs/MULTI-TENANT.md has the rest.
set -eu
umask 077

refuse() {
    printf 'add-tenant: %s\n' "$1" >&2
    exit 2
}

[ "$#" -eq 1 ] || refuse "say which tenant: scripts/add-tenant.sh NAME"
name=$1
rule="a name has 1 to 64 of a-z, 0-9, - and _, and begins with a letter or digit"
# Ranges such as a-z mean other things in other languages.
LC_ALL=C
export LC_ALL
case $name in
'' | [!a-z0-9]* | *[!a-z0-9_-]*) refuse "this cannot be the name of a tenant: $rule" ;;
esac
[ "${#name}" -le 64 ] || refuse "this name is too long: $rule"

tenants=${TENANTS:-./tenants}
mkdir -p -- "$tenants" || refuse "$tenants cannot be made; name another folder with TENANTS"
# A relative home would mean another folder wherever it is used.
tenants=$(CDPATH='' cd -- "$tenants" && pwd -P)
home=$tenants/$name
if [ -e "$home" ] || [ -L "$home" ]; then
    refuse "$home is there already; nothing was changed"
fi
mkdir -- "$home" || refuse "$home cannot be made; nothing was changed"
trap 'rm -rf -- "$home"' EXIT
mkdir -- "$home/agents" "$home/skills"

cat >"$home/config.toml" <<'CONFIG'
# model = "provider/model"   # what the tenant's agents run on

[swarm]
enabled = true
max_depth = 1                # sub-agents have none of their own
max_concurrent = 3           # active at once

[swarm.roles.researcher]
system_prompt = "You find things out and name your sources."
tools = ["web_search", "web_fetch", "memory_search", "memory_get"]
locked = true                # a call can narrow these tools, not widen them

[swarm.roles.writer]
system_prompt = "You write clearly and briefly."
tools = ["read_file", "write_file", "edit_file", "memory_search"]
locked = true

[budget]                     # of one run
tokens = 500000
agents = 20

[permissions]
deny = ["read_file(**/.env*)"]
CONFIG
trap - EXIT

printf '%s\n' "$home"
printf 'Run as this tenant: HOME="%s" BRIGADE_HOME="%s" brigade run "TASK"\n' "$home" "$home" >&2
