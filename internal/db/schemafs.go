package db

import (
	"bytes"
	"io"
	"io/fs"
	"path"
)

// schemaFS shows the SQL files of another file system with the real schema
// names put in.
type schemaFS struct {
	base   fs.FS
	schema Schema
}

// Open implements fs.FS.
func (s schemaFS) Open(name string) (fs.File, error) {
	if path.Ext(name) != ".sql" {
		return s.base.Open(name)
	}
	text, err := s.ReadFile(name)
	if err != nil {
		return nil, err
	}
	info, err := fs.Stat(s.base, name)
	if err != nil {
		return nil, err
	}
	return &schemaFile{Reader: bytes.NewReader(text), info: sizedInfo{info, int64(len(text))}}, nil
}

// ReadFile implements fs.ReadFileFS.
func (s schemaFS) ReadFile(name string) ([]byte, error) {
	text, err := fs.ReadFile(s.base, name)
	if err != nil || path.Ext(name) != ".sql" {
		return text, err
	}
	return []byte(s.schema.SQL(string(text))), nil
}

// schemaFile is an opened SQL file.
type schemaFile struct {
	io.Reader
	info fs.FileInfo
}

func (f *schemaFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *schemaFile) Close() error               { return nil }

// sizedInfo has the size after substitution.
type sizedInfo struct {
	fs.FileInfo
	size int64
}

func (i sizedInfo) Size() int64 { return i.size }
