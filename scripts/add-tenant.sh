#!/bin/sh
# Creates the home directory of a tenant: scripts/add-tenant.sh NAME
# The directory is ${TENANTS:-./tenants}/NAME, readable only by its owner. See docs/MULTI-TENANT.md.
set -eu
umask 077

refuse() {
    printf 'add-tenant: %s\n' "$1" >&2
    exit 2
}

[ "$#" -eq 1 ] || refuse "expected one argument, the name of the tenant. Usage: scripts/add-tenant.sh NAME"
name=$1
rule="use 1 to 64 of a-z, 0-9, - and _, starting with a letter or digit"
# Ranges such as a-z match other characters in other locales.
LC_ALL=C
export LC_ALL
case $name in
'' | [!a-z0-9]* | *[!a-z0-9_-]*) refuse "invalid tenant name: $rule" ;;
esac
[ "${#name}" -le 64 ] || refuse "the tenant name is too long: $rule"

tenants=${TENANTS:-./tenants}
mkdir -p -- "$tenants" || refuse "cannot create $tenants. Set TENANTS to another directory."
# A relative home would resolve to a different directory wherever it is used.
tenants=$(CDPATH='' cd -- "$tenants" && pwd -P)
home=$tenants/$name
if [ -e "$home" ] || [ -L "$home" ]; then
    refuse "$home already exists; nothing was changed"
fi
mkdir -- "$home" || refuse "cannot create $home; nothing was changed"
trap 'rm -rf -- "$home"' EXIT
mkdir -- "$home/agents" "$home/skills"

cat >"$home/config.toml" <<'CONFIG'
# model = "provider/model"   # default model of the tenant's agents

[swarm]
enabled = true
max_depth = 1                # sub-agents cannot delegate
max_concurrent = 3           # maximum number of active sub-agents

[swarm.roles.researcher]
system_prompt = "Research the question and cite your sources."
tools = ["web_search", "web_fetch", "memory_search", "memory_get"]
locked = true                # a call can narrow these tools, not widen them

[swarm.roles.writer]
system_prompt = "You write clearly and briefly."
tools = ["read_file", "write_file", "edit_file", "memory_search"]
locked = true

[budget]                     # limits of one run
tokens = 500000
agents = 20

[permissions]
deny = ["read_file(**/.env*)"]
CONFIG
trap - EXIT

printf '%s\n' "$home"
printf 'Run as this tenant: HOME="%s" BRIGADE_HOME="%s" brigade run "TASK"\n' "$home" "$home" >&2
