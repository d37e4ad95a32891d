# Shell functions shared by the Makefile and .ci/run. They only install
# anything by apt-get, as root, and say so.

docker_answers() { command -v docker >/dev/null && docker info >/dev/null 2>&1; }

# Prints the folder of the Postgres binaries of this machine, as package
# internal/db/embedded looks for them: $SIDING_PG_BIN, PATH, usual folders.
postgres_bin() {
    local program dir
    if [[ -n ${SIDING_PG_BIN:-} ]]; then
        [[ -x $SIDING_PG_BIN/initdb ]] && echo "$SIDING_PG_BIN"
        return
    fi
    for program in initdb postgres; do
        if program=$(command -v "$program"); then
            dir=$(dirname "$(readlink -f "$program")")
            [[ ! -x $dir/initdb ]] || { echo "$dir"; return; }
        fi
    done
    dir=$(printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin \
        /usr/local/opt/postgresql*/bin /Applications/Postgres.app/Contents/Versions/*/bin /usr/local/pgsql/bin |
        while read -r d; do [[ ! -x $d/initdb ]] || echo "$d"; done | sort -V | tail -n 1)
    [[ -n $dir ]] && echo "$dir"
}

can_install() { [[ $(id -u) = 0 ]] && command -v apt-get >/dev/null; }

# install PACKAGE...: installs what is missing of Debian packages.
install_packages() {
    local package missing=()
    for package in "$@"; do
        [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) = "install ok installed" ]] || missing+=("$package")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    can_install || { echo "missing: ${missing[*]}; install them (as root: apt-get install ${missing[*]})" >&2; return 1; }
    echo "installing ${missing[*]}" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2 || {
        apt-get update -q >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
    }
}

# Makes sure that there are Postgres binaries.
ensure_postgres() {
    postgres_bin >/dev/null && return
    if can_install; then
        install_packages postgresql
        return
    fi
    echo "There are no Postgres server binaries. Install them (Debian, Ubuntu: apt-get install postgresql; Fedora:" \
        "dnf install postgresql-server; macOS: brew install postgresql), or name their folder in SIDING_PG_BIN." >&2
    return 1
}

# Says in one line what the tests will use, and makes sure that it is there.
test_server() {
    if [[ -n ${SIDING_TEST_REQUIRE:-} ]]; then
        echo "tests use: $SIDING_TEST_REQUIRE (SIDING_TEST_REQUIRE)"
    elif [[ -n ${SIDING_TEST_DATABASE_URL:-} ]]; then
        echo "tests use: the server in SIDING_TEST_DATABASE_URL"
    elif docker_answers; then
        echo "tests use: Docker, image ${SIDING_TEST_POSTGRES_IMAGE:-postgres:17-alpine}; the local Postgres if that can't be had"
    else
        ensure_postgres
        echo "tests use: the local Postgres in $(postgres_bin)"
    fi
}
