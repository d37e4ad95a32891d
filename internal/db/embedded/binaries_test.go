package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/siding-dev/siding/internal/db/embedded"
)

// install makes a folder that looks like the binaries of a version.
func install(t *testing.T, dir, version string, programs ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
		if err := os.WriteFile(filepath.Join(dir, p), []byte(script), 0o755); err != nil { // a program
			t.Fatal(err)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	install(t, dir("pg", "9", "bin"), "9.6.24", "initdb", "postgres")
	install(t, dir("pg", "15", "bin"), "15.9 (Debian 15.9-0)", "initdb", "postgres")
	install(t, dir("pg", "17", "bin"), "17beta1", "initdb", "postgres")
	install(t, dir("pg", "18", "bin"), "18.0", "postgres") // no initdb
	install(t, dir("pg", "19", "bin"), "", "initdb", "postgres")
	if err := os.Mkdir(dir("path"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir("pg", "15", "bin", "initdb"), dir("path", "initdb")); err != nil {
		t.Fatal(err)
	}
	b := func(major int, folder string) embedded.Binaries {
		return embedded.Binaries{Dir: dir("pg", folder, "bin"), Major: major}
	}
	usual := []string{dir("none", "*"), dir("pg", "*", "bin")}
	for name, test := range map[string]struct {
		path    string
		folders []string
		want    []embedded.Binaries
	}{
		"usual folders, newest first": {"", usual, []embedded.Binaries{b(17, "17"), b(15, "15"), b(9, "9")}},
		"PATH first, behind the link": {dir("path"), usual, []embedded.Binaries{b(15, "15"), b(17, "17"), b(9, "9")}},
		"PATH alone":                  {dir("none") + ":" + dir("path"), nil, []embedded.Binaries{b(15, "15")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := embedded.FindIn(t.Context(), test.path, test.folders)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		_, err := embedded.FindIn(t.Context(), dir("none"), []string{dir("none", "*")})
		var none *embedded.NotFoundError
		if !errors.As(err, &none) {
			t.Fatalf("got %v, want a NotFoundError", err)
		}
		for _, part := range []string{dir("none", "*"), "PATH", embedded.BinEnv, "apt-get install postgresql"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error doesn't say %q: %v", part, err)
			}
		}
	})
}

func TestFindKeepsToTheEnvironment(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	install(t, dir, "16.1", "initdb", "postgres")
	t.Setenv(embedded.BinEnv, dir)
	got, err := embedded.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]embedded.Binaries{{Dir: dir, Major: 16}}, got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	t.Setenv(embedded.BinEnv, filepath.Join(dir, "none"))
	if got, err := embedded.Find(t.Context()); err == nil || !strings.Contains(err.Error(), embedded.BinEnv) {
		t.Errorf("got %v and error %v, want an error about %s", got, err, embedded.BinEnv)
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	found := []embedded.Binaries{{Dir: "/17", Major: 17}, {Dir: "/15", Major: 15}}
	for major, want := range map[int]string{0: "/17", 17: "/17", 15: "/15"} {
		if got, err := embedded.Choose(found, major); err != nil || got.Dir != want {
			t.Errorf("for data of version %d: got %v, %v, want %s", major, got, err, want)
		}
	}
	_, err := embedded.Choose(found, 14)
	if err == nil || !strings.Contains(err.Error(), "data is of Postgres 14, but the binaries here are of 17 (/17), 15 (/15)") {
		t.Errorf("for data of version 14: %v", err)
	}
}
