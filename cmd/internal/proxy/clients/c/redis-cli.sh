#!/usr/bin/env bash
# What redis-cli does through the proxy. clients_test.go runs it, and expects a line for each check.
set -euo pipefail

proxy=$1 server=$2 protocol=$3 prefix=$4

# through sends commands to the proxy, past to Redis itself.
proxied=(redis-cli -h "${proxy%:*}" -p "${proxy#*:}" "-$protocol")
through() { "${proxied[@]}" "$@"; }
past() { redis-cli -h "${server%:*}" -p "${server#*:}" "-$protocol" "$@"; }

value() { printf '%s %s' "$1" "$BALE_VALUE"; }

equal() {
	[ "$1" = "$2" ] || { echo "got: $1, want: $2" >&2; exit 1; }
}

is_packed() {
	[[ $1 == '"\xba\x1e'* ]] || { echo "not packed: $1" >&2; exit 1; }
}

strings() {
	equal "$(value 1 | through -x SET "${prefix}a")" OK
	is_packed "$(past --no-raw GET "${prefix}a")"
	equal "$(through GET "${prefix}a")" "$(value 1)"
	equal "$(through GETSET "${prefix}a" "$(value 2)")" "$(value 1)"
	equal "$(through MSET "${prefix}a" "$(value 4)" "${prefix}b" "$(value 5)" "other:$prefix" "$(value 6)")" OK
	equal "$(through MGET "${prefix}b" "${prefix}none" "other:$prefix" "${prefix}a")" "$(value 5)"$'\n\n'"$(value 6)"$'\n'"$(value 4)"
	equal "$(past GET "other:$prefix")" "$(value 6)"
	equal "$(through SET "${prefix}n" 41) $(through INCR "${prefix}n")" "OK 42"
}

hashes() {
	equal "$(through HSET "${prefix}h" f "$(value 1)" n 1)" 2
	is_packed "$(past --no-raw HGET "${prefix}h" f)"
	equal "$(through HGET "${prefix}h" f)" "$(value 1)"
	equal "$(through HVALS "${prefix}h" | sort)" "$(printf '1\n%s' "$(value 1)" | sort)"
}

# Mass insertion, and inline commands.
pipeline() {
	local i
	for i in $(seq 0 199); do printf "SET %sp%d '%s'\r\n" "$prefix" "$i" "$(value "$i")"; done | through --pipe >/dev/null
	is_packed "$(past --no-raw GET "${prefix}p7")"
	equal "$(for i in $(seq 0 199); do echo "GET ${prefix}p$i"; done | through)" "$(for i in $(seq 0 199); do value "$i" && echo; done)"
}

transaction() {
	equal "$(printf 'MULTI\nGET %sp1\nGET %sp2\nEXEC\n' "$prefix" "$prefix" | through)" $'OK\nQUEUED\nQUEUED\n'"$(value 1)"$'\n'"$(value 2)"
}

pubsub() {
	local messages
	messages=$(mktemp)
	"${proxied[@]}" SUBSCRIBE "${prefix}ch" >"$messages" </dev/null &
	local subscriber=$!
	until [ "$(through PUBLISH "${prefix}ch" "$(value 1)")" = 1 ]; do sleep 0.02; done
	until grep -qF "$(value 1)" "$messages"; do sleep 0.02; done
	kill "$subscriber"
	rm "$messages"
}

refused() {
	local said
	said=$(through APPEND "${prefix}a" x 2>&1) || true
	[[ $said == *"BALE APPEND on a key in scope: "* ]] || { echo "$said" >&2; exit 1; }
	equal "$(through GET "${prefix}a")" "$(value 4)"
}

scan() {
	equal "$(through --scan --pattern "${prefix}p*" | wc -l)" 200
}

for check in strings hashes pipeline transaction pubsub refused scan; do
	"$check"
	echo "$check"
done
