#!/bin/sh
# Writes this package for valkey-go, which is rueidis under another name, to a folder of your own module: sh valkey.sh DIR
set -eu
cd "$(dirname "$0")"
to=${1:?give the folder to write to}
mkdir -p "$to"
for file in *.go; do
	case $file in *_test.go) continue ;; esac
	sed -e 's#redis/rueidis#valkey-io/valkey-go#' -e 's#rueidis\.Redis#valkey.Valkey#g' -e 's#rueidis\.IsRedis#valkey.IsValkey#g' \
		-e 's#\brueidis\.#valkey.#g' -e 's#"rueidis: #"valkey: #' -e 's#^package rueidis#package valkey#' -e 's#^// Package rueidis#// Package valkey#' \
		"$file" >"$to/$file"
done
echo "wrote package valkey to $to; go get github.com/valkey-io/valkey-go"
