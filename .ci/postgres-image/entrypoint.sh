#!/bin/sh
# The part of the official image's entrypoint that tests rely on: it creates
# the data at the first start, with POSTGRES_USER, POSTGRES_PASSWORD and
# POSTGRES_DB, by a first server that only listens on the Unix socket. So the
# log says "ready to accept connections" twice, which wait strategies count on.
set -eu
data=${PGDATA:-/var/lib/postgresql/data}
user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
password=${POSTGRES_PASSWORD:-}

case ${1:-postgres} in
-*) set -- postgres "$@" ;;
postgres) ;;
*) exec "$@" ;;
esac

if [ "$(id -u)" = 0 ]; then
    mkdir -p "$data" /var/run/postgresql
    chown postgres:postgres "$data" /var/run/postgresql
    chmod 700 "$data"
    exec /usr/bin/setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

if [ ! -s "$data/PG_VERSION" ]; then
    if [ -z "$password" ]; then
        echo "POSTGRES_PASSWORD is not set" >&2
        exit 1
    fi
    secret=/tmp/superuser-password
    (umask 077 && printf '%s\n' "$password" >"$secret")
    initdb --pgdata="$data" --username="$user" --pwfile="$secret" --auth-host=scram-sha-256 --auth-local=trust \
        --encoding=UTF8 --no-sync
    rm "$secret"
    echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
    echo "listen_addresses = '*'" >>"$data/postgresql.conf"

    pg_ctl --pgdata="$data" --wait --silent --options="-c listen_addresses=''" start
    if [ "$database" != postgres ]; then
        createdb --username="$user" --maintenance-db=postgres "$database"
    fi
    for script in /docker-entrypoint-initdb.d/*.sql; do
        [ ! -e "$script" ] || psql --username="$user" --dbname="$database" --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --file="$script"
    done
    pg_ctl --pgdata="$data" --wait --silent --mode=fast stop
fi
exec "$@"
