package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/siding-dev/siding/internal/definition"
)

// FileEnv names the environment variable that says which file is read.
const FileEnv = "SIDING_CONFIG"

// envPrefix begins the environment variable of every key: SIDING_DATABASE_URL
// is database.url.
const envPrefix = "SIDING"

// usualFiles are looked for when none is named. A package variable of the
// tests' choice would be shared by them, so Options has it too.
var usualFiles = []string{"config.yaml", "/etc/siding/config.yaml"}

// Options say where Load looks.
type Options struct {
	// File is read if set, and must exist. Otherwise the file in SIDING_CONFIG
	// (which must exist), ./config.yaml, or /etc/siding/config.yaml.
	File string
	// Flags override everything else once a person has set them: key to flag.
	Flags map[string]*pflag.Flag

	// usual replaces the usual files, for tests.
	usual []string
}

// Load reads the configuration. It checks the form of all keys, but not what
// they need of each other: that is [Config.Validate]. The second value is the
// file that was read, empty if there is none.
func Load(o Options) (Config, string, error) {
	v := viper.New()
	defaults := map[string]any{}
	leaves(reflect.ValueOf(Default()), "", defaults)
	for key, value := range defaults {
		v.SetDefault(key, value)
		// Each key by itself: viper's automatic mode takes a variable such as
		// SIDING_AGENT, which jobs have, for a section.
		name := envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
		if err := v.BindEnv(key, name); err != nil {
			return Config{}, "", fmt.Errorf("configuration: %s: %w", key, err)
		}
	}
	for key, flag := range o.Flags {
		if _, known := defaults[key]; !known {
			return Config{}, "", fmt.Errorf("configuration: flag --%s is for the unknown key %s", flag.Name, key)
		}
		// Only flags that were given: viper takes the default of a flag for a
		// value too, if the key has no other.
		if flag.Changed {
			v.Set(key, flagValue(flag))
		}
	}
	file, err := find(o)
	if err != nil {
		return Config{}, "", err
	}
	if file != "" {
		if err := readFile(v, file, defaults); err != nil {
			return Config{}, file, fmt.Errorf("configuration %s: %w", file, err)
		}
	}
	var c Config
	err = v.Unmarshal(&c, viper.DecodeHook(hooks()), func(dc *mapstructure.DecoderConfig) {
		dc.ErrorUnused = true
		// The default of a list would otherwise remain behind a shorter one.
		dc.ZeroFields = true
	})
	if err != nil {
		return Config{}, file, fmt.Errorf("configuration: %w", readable(err))
	}
	return c, file, nil
}

func flagValue(flag *pflag.Flag) any {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return flag.Value.String()
}

// find returns the file to read, empty if there is none.
func find(o Options) (string, error) {
	for _, named := range []string{o.File, os.Getenv(FileEnv)} {
		if named != "" {
			return named, nil
		}
	}
	usual := o.usual
	if usual == nil {
		usual = usualFiles
	}
	for _, path := range usual {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("configuration: %w", err)
		}
	}
	return "", nil
}

// readFile reads a file into v and refuses keys that aren't known.
func readFile(v *viper.Viper, path string, known map[string]any) error {
	alone := viper.New()
	for _, one := range []*viper.Viper{alone, v} {
		one.SetConfigFile(path)
		if ext := filepath.Ext(path); ext == "" {
			one.SetConfigType("yaml")
		}
		if err := one.ReadInConfig(); err != nil {
			return err
		}
	}
	var errs []error
	keys := alone.AllKeys()
	slices.Sort(keys)
	for _, key := range keys {
		if _, ok := known[key]; !ok {
			errs = append(errs, unknownKey(key, known))
		}
	}
	return errors.Join(errs...)
}

// leaves collects the keys that hold a value, with their defaults.
func leaves(section reflect.Value, prefix string, into map[string]any) {
	for i := range section.NumField() {
		key := prefix + section.Type().Field(i).Tag.Get("mapstructure")
		if value := section.Field(i); value.Kind() == reflect.Struct {
			leaves(value, key+".", into)
		} else {
			into[key] = value.Interface()
		}
	}
}

// Keys lists all keys in alphabetical order.
func Keys() []string {
	all := map[string]any{}
	leaves(reflect.ValueOf(Default()), "", all)
	return sortedKeys(all)
}

func sortedKeys(of map[string]any) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// hooks read what people write as text.
func hooks() mapstructure.DecodeHookFunc {
	return mapstructure.ComposeDecodeHookFunc(decodeDuration, decodeSize, decodeTokens, mapstructure.StringToSliceHookFunc(","))
}

func decodeDuration(_, to reflect.Type, value any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() {
		return value, nil
	}
	switch v := value.(type) {
	case time.Duration:
		return v, nil
	case string:
		d, err := definition.ParseDuration(v)
		return d.Std(), err
	}
	return nil, fmt.Errorf("%v is not a duration; write it with a unit, such as 10s", value)
}

func decodeSize(_, to reflect.Type, value any) (any, error) {
	if to != reflect.TypeFor[Size]() {
		return value, nil
	}
	text, ok := value.(string)
	if !ok {
		return value, nil
	}
	bytes, err := humanize.ParseBytes(text)
	if err != nil || bytes > math.MaxInt64 {
		return nil, fmt.Errorf("%q is not a size; write it as 65536 or 64KiB", text)
	}
	return Size(bytes), nil
}

// decodeTokens reads a list of tokens from one line, for the environment:
// name:role:sha256, separated by commas.
func decodeTokens(_, to reflect.Type, value any) (any, error) {
	text, ok := value.(string)
	if !ok || to != reflect.TypeFor[[]Token]() {
		return value, nil
	}
	tokens := []Token{}
	for _, one := range strings.Split(text, ",") {
		parts := strings.Split(strings.TrimSpace(one), ":")
		if len(parts) != 3 {
			return nil, fmt.Errorf("token %d is not name:role:sha256", len(tokens)+1)
		}
		tokens = append(tokens, Token{Name: parts[0], Role: parts[1], SHA256: parts[2]})
	}
	return tokens, nil
}

// readable turns the decoder's nested list of failures into lines that begin
// with the key, in the order of the keys.
func readable(err error) error {
	found := failures(err)
	slices.SortStableFunc(found, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(found...)
}

func failures(err error) []error {
	switch wrapper := err.(type) { //nolint:errorlint // each level is taken apart
	case interface{ Unwrap() []error }:
		var found []error
		for _, part := range wrapper.Unwrap() {
			found = append(found, failures(part)...)
		}
		return found
	case *mapstructure.DecodeError:
		return []error{fmt.Errorf("%s: %w", strings.ToLower(wrapper.Name()), wrapper.Unwrap())}
	case interface{ Unwrap() error }:
		return failures(wrapper.Unwrap())
	}
	return []error{err}
}
