#!/bin/sh
# Writes adapter/valkey from this package: valkey-go is rueidis under other names. sh valkey.sh [DIR]
set -eu
cd "$(dirname "$0")"
to=${1:-../valkey}
for file in *.go; do
	[ "$file" != valkey_test.go ] || continue
	sed -e '1i // Code generated from adapter/rueidis by valkey.sh. DO NOT EDIT.\n' \
		-e 's#redis/rueidis#valkey-io/valkey-go#' -e 's#adapter/rueidis#adapter/valkey#' \
		-e 's#rueidis\.\(Is\)\{0,1\}Redis#valkey.\1Valkey#g' -e 's#NonRedisError#NonValkeyError#g' -e 's#\brueidis\b#valkey#g' -e '/^\/\/ Package/s/a valkey client/a valkey-go client/' \
		-e '/^\/\/ For valkey-go/d' \
		"$file" >"$to/$(echo "$file" | sed 's#^rueidis#valkey#')"
done
gofmt -w "$to"/*.go # the order of imports
