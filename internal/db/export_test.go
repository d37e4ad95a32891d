package db

import "io/fs"

// WithMigrations lets tests migrate with their own files.
func (c MigrateConfig) WithMigrations(files fs.FS) MigrateConfig {
	c.migrations = files
	return c
}

// CommitError lets tests judge outcomes of COMMIT that can't be provoked.
func CommitError(err error) error { return commitError(err) }
