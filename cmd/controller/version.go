package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker when a release is built.
var version = ""

// buildVersion says what this binary was built from.
func buildVersion() (version_, commit, goVersion string) {
	version_ = version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version_, "", ""
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if commit == "" {
		commit = "unknown"
	}
	if modified {
		commit += "+changes"
	}
	if version_ == "" {
		version_ = info.Main.Version
	}
	return version_, commit, info.GoVersion
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show what this binary was built from", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v, commit, goVersion := buildVersion()
			return a.printer().Say(map[string]string{"version": v, "commit": commit, "go": goVersion}, "controller %s (commit %s, %s)", v, commit, goVersion)
		},
	}
}
