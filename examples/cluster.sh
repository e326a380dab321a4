#!/bin/bash
# Three nodes and a fourth that only answers, on this machine, to look at and to kill parts of.
# 'make cluster' runs it.
#
#   a, b, c   route, hold and answer. Their embedded NATS servers are one cluster, streams have
#             three copies, shards two holders
#   thin      only answers; a community of made-up users lives on it
#
# Everything is in $DIR, where the next run finds it. A node that ends is started again after
# $RESTART seconds, never where that is 0. Ctrl-C stops all in order.
set -um # each node in a process group of its own: Ctrl-C is this script's to pass on
TIDEMARK=${TIDEMARK:-bin/tidemark} # the program, as 'make build' makes it
DIR=${DIR:-data-cluster}           # of configurations, logs and data
RESTART=${RESTART:-10}             # seconds that a node which has ended stays away; 0: until you start it
NATS=${NATS:-4231}                 # port of node a; b and c have the next ones
ROUTE=${ROUTE:-6231}
HTTP=${HTTP:-8481}

urls=nats://127.0.0.1:$NATS,nats://127.0.0.1:$((NATS + 1)),nats://127.0.0.1:$((NATS + 2))
routes="nats://127.0.0.1:$ROUTE, nats://127.0.0.1:$((ROUTE + 1)), nats://127.0.0.1:$((ROUTE + 2))"
key=$DIR/node.nk

# port NODE is how far its ports are from those of a.
port() { case $1 in a) echo 0 ;; b) echo 1 ;; c) echo 2 ;; thin) echo 3 ;; esac; }

# configure writes config.yaml of each node. Streams are small: this machine has three copies.
configure() {
	for node in a b c thin; do
		n=$(port $node)
		mkdir -p "$DIR/$node"
		cat >"$DIR/$node/config.yaml" <<-END
			# Written by 'make cluster', which writes it again.
			node: $node
			http: {listen: "127.0.0.1:$((HTTP + n))"}
			memory: {budget: 256MiB}
			channels: {games: {kind: dot}} # the community lights it
		END
		if test $node = thin; then
			cat >>"$DIR/$node/config.yaml" <<-END
				roles: [answer]
				nats: {url: "$urls", nkey: "$key"}
			END
			continue
		fi
		cat >>"$DIR/$node/config.yaml" <<-END
			data_dir: "$DIR/$node/data"
			cluster: {replicas: 2} # holders of each shard
			nats:
			  listen: "127.0.0.1:$((NATS + n))"
			  nkey: "$key"
			  replicas: 3 # copies of each stream
			  cluster: {name: tidemark-demo, listen: "127.0.0.1:$((ROUTE + n))", routes: [$routes]}
			  streams: {events: {max_bytes: 2GiB}, deltas: {max_bytes: 1GiB}, deadletter: {max_bytes: 64MiB}}
		END
	done
}

# keep runs a node in the background, again whenever it has ended; $DIR/NODE/pid is its process.
keep() {
	(
		while :; do
			"$TIDEMARK" run --demo-node --config "$DIR/$1/config.yaml" >>"$DIR/$1/log" 2>&1 &
			echo $! >"$DIR/$1/pid"
			test -e "$DIR/stop" && kill $!
			wait $!
			code=$?
			rm -f "$DIR/$1/pid"
			test $code = 0 -o -e "$DIR/stop" && exit # in order
			if test "$RESTART" -eq 0; then
				echo "node $1 has ended ($code); its log: $DIR/$1/log. To start it: $TIDEMARK run --demo-node --config $DIR/$1/config.yaml"
				exit
			fi
			echo "node $1 has ended ($code). It starts again in $RESTART s; its log: $DIR/$1/log"
			for _ in $(seq "$RESTART"); do
				sleep 1
				test -e "$DIR/stop" && exit
			done
			echo "node $1 is started again"
		done
	) &
}

# stop ends all in order, first the one that only answers. A second Ctrl-C kills them.
stop() {
	trap 'kill -9 $(cat "$DIR"/*/pid)' INT TERM
	touch "$DIR/stop"
	for node in thin a b c; do
		test -e "$DIR/$node/pid" && kill "$(cat "$DIR/$node/pid")" 2>/dev/null
		test $node = thin || continue
		while kill -0 "$(cat "$DIR/thin/pid" 2>/dev/null)" 2>/dev/null; do sleep 0.1; done
	done
	wait
	rm -f "$DIR/stop" "$DIR"/*/pid
	echo "The nodes have stopped."
	exit "${1:-0}"
}

# ready waits until nodes are up and all that is asked is answered.
ready() {
	for node; do
		until "$TIDEMARK" nodes --nats "$urls" --nkey "$key" 2>/dev/null | grep -q "^$node .* up " &&
			"$TIDEMARK" get post 1 --nats "$urls" >/dev/null 2>&1; do
			sleep 0.5
			kill -0 "$(cat "$DIR/$node/pid")" 2>/dev/null && continue
			tail -n 3 "$DIR/$node/log"
			stop 1
		done
	done
}

command -v "$TIDEMARK" >/dev/null || { echo "there is no $TIDEMARK: 'make build' makes it" >&2; exit 1; }
for node in a b c thin; do
	if test -e "$DIR/$node/pid" && kill -0 "$(cat "$DIR/$node/pid")" 2>/dev/null; then
		echo "$DIR is in use: node $node runs, process $(cat "$DIR/$node/pid")" >&2
		exit 1
	fi
done
mkdir -p "$DIR"
rm -f "$DIR/stop" "$DIR"/*/pid
configure
trap stop INT TERM
echo "Three nodes start, with a NATS server in each. The first time it takes some ten seconds until these agree on leaders."
keep a
keep b
keep c
ready a b c
keep thin
ready thin
cat <<END

Tidemark runs as four processes, with a demo: a small community of MADE-UP users (1, 2, 3, …).

Look at
  badges     http://127.0.0.1:$((HTTP + 3))/demo/      in a browser: what is new for user 1, live
  figures    http://127.0.0.1:$((HTTP + 3))/metrics, and /readyz     the same on $HTTP to $((HTTP + 2)): a, b and c
  in another terminal, more than once:

    export NATS_URL=$urls TIDEMARK_NKEY=$key
    $TIDEMARK nodes
    $TIDEMARK shards
    $TIDEMARK unread 1 2 3
    $TIDEMARK top

Kill
$(for node in a b c thin; do echo "  kill -9 $(cat "$DIR/$node/pid")    node $node"; done)

Answers stay whole when one of a, b and c is away; where it routed they stand still for a second or two.
Logs: $DIR/*/log. Ctrl-C stops all in order.
END
while :; do wait; sleep 1; done
