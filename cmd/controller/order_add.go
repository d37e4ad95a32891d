package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/cli"
)

// addBatch is how many orders of a stream are added by one call.
const addBatch = 1000

func (a *app) orderAddCommand() *cobra.Command {
	var o client.NewOrder
	var file, argsText string
	var args, attachments, inline []string
	c := &cobra.Command{
		Use:   "add",
		Short: "Add one order by flags, or many from a file",
		Long: `Adds one order described by flags, or the orders of a file: one JSON object, an
array of them (added by one call, all or none), or one object per line (added
a thousand at a time). The fields are those of the API: workflow, ref, key,
queue, due, wait_limit, args, attachments.

With a reference adding is idempotent: the same reference and content gives the
order that is there.`,
		Example: `  controller order add --workflow intake --arg customer=C1 --ref J1
  controller order add --workflow intake --key C2 --attachment scan,size=11,sha256=b94d27...
  jq -c '.[]' orders.json | controller order add -f -`,
		Args: cobra.NoArgs,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			if file != "" {
				for _, name := range []string{"workflow", "ref", "key", "queue", "due", "wait-limit", "arg", "args", "attachment", "inline"} {
					if cmd.Flags().Changed(name) {
						return cli.Usage(fmt.Errorf("--%s can't be given with -f: the file says it", name))
					}
				}
				return a.addFile(cmd, c, file)
			}
			if o.Workflow == "" {
				return cli.Usage(errors.New("--workflow or -f is missing"))
			}
			var err error
			if o.Args, err = readArgs(argsText, args); err != nil {
				return cli.Usage(err)
			}
			if o.Attachments, err = readAttachments(attachments, inline); err != nil {
				return cli.Usage(err)
			}
			added, err := c.Add(cmd.Context(), o)
			if err != nil {
				return err
			}
			return a.printer().Added([]client.Added{added})
		}),
	}
	flags := c.Flags()
	flags.StringVarP(&file, "filename", "f", "", "`file` of orders, - for standard input")
	flags.StringVar(&o.Workflow, "workflow", "", "`name` of the workflow")
	flags.StringVar(&o.Ref, "ref", "", "a `reference` of your own")
	flags.StringVar(&o.Key, "key", "", "the `key`, where the workflow takes it from the order")
	flags.StringVar(&o.Queue, "queue", "", "`name` of the queue to assign")
	flags.StringVar(&o.Due, "due", "", "`time` before which it doesn't start: 2026-01-31T08:00:00Z, or 90m from now")
	flags.StringVar(&o.WaitLimit, "wait-limit", "", "how `long` it may wait for its attachments")
	flags.StringArrayVar(&args, "arg", nil, "an argument `name=value`, as text; may be repeated")
	flags.StringVar(&argsText, "args", "", "arguments as a JSON `object`")
	flags.StringArrayVar(&attachments, "attachment", nil, "an attachment to expect: `name[,size=N][,sha256=HEX]`; may be repeated")
	flags.StringArrayVar(&inline, "inline", nil, "an attachment that is sent along, if small: `name=file`; may be repeated")
	return c
}

// readArgs makes the arguments of an object and of name=value pairs, which go
// before it.
func readArgs(object string, pairs []string) (json.RawMessage, error) {
	var args map[string]json.RawMessage
	if object != "" {
		if err := json.Unmarshal([]byte(object), &args); err != nil {
			return nil, fmt.Errorf("--args is no JSON object: %w", err)
		}
	}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--arg %q is not name=value", pair)
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("--arg %s: %w", name, err)
		}
		if args == nil {
			args = map[string]json.RawMessage{}
		}
		args[name] = text
	}
	if args == nil {
		return nil, nil
	}
	return json.Marshal(args)
}

func readAttachments(expected, inline []string) ([]client.NewAttachment, error) {
	var list []client.NewAttachment
	for _, text := range expected {
		fields := strings.Split(text, ",")
		one := client.NewAttachment{Name: fields[0]}
		for _, field := range fields[1:] {
			what, value, _ := strings.Cut(field, "=")
			switch what {
			case "size":
				size, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					return nil, fmt.Errorf("--attachment %s: size %q is not a number of bytes", one.Name, value)
				}
				one.Size = &size
			case "sha256":
				one.SHA256 = value
			default:
				return nil, fmt.Errorf("--attachment %s: %q is neither size=N nor sha256=HEX", one.Name, field)
			}
		}
		list = append(list, one)
	}
	for _, text := range inline {
		name, file, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("--inline %q is not name=file", text)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--inline %s: %w", name, err)
		}
		list = append(list, client.NewAttachment{Name: name, Content: append([]byte{}, content...)})
	}
	return list, nil
}

// addFile adds the orders of a file.
func (a *app) addFile(cmd *cobra.Command, c *client.Client, file string) (err error) {
	source, _, err := a.openFile(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	reader := bufio.NewReader(source)
	first, err := firstByte(reader)
	if err != nil {
		return cli.Usage(fmt.Errorf("%s: %w", file, err))
	}
	all := []client.Added{}
	if first == '[' {
		text, err := io.ReadAll(reader)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if all, err = c.AddJSON(cmd.Context(), text); err != nil {
			return err
		}
		return a.printer().Added(all)
	}
	// A stream of objects, in batches.
	stream := json.NewDecoder(reader)
	for ended := false; !ended; {
		var batch [][]byte
		for len(batch) < addBatch {
			var one json.RawMessage
			err := stream.Decode(&one)
			if errors.Is(err, io.EOF) {
				ended = true
				break
			}
			if err != nil {
				err = fmt.Errorf("%s: order %d is not JSON: %w", file, len(all)+len(batch)+1, err)
				return cli.Usage(errors.Join(err, added(len(all))))
			}
			batch = append(batch, one)
		}
		if len(batch) == 0 {
			break
		}
		some, err := c.AddJSON(cmd.Context(), append(append([]byte{'['}, bytes.Join(batch, []byte{','})...), ']'))
		if err != nil {
			return errors.Join(err, added(len(all)))
		}
		all = append(all, some...)
	}
	return a.printer().Added(all)
}

// added says how far a stream came before it failed.
func added(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("the first %d orders were added", n)
}

// firstByte looks at the first byte that isn't space.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if errors.Is(err, io.EOF) {
			return 0, errors.New("holds no orders")
		}
		if err != nil {
			return 0, err
		}
		if !strings.ContainsRune(" \t\r\n", rune(b)) {
			return b, r.UnreadByte()
		}
	}
}
