package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/definition"
)

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var dryRun bool
	c := &cobra.Command{
		Use:   "apply -f FILE...",
		Short: "Apply queues, locks, agents and workflows from files, all or none",
		Long: `Applies all documents of all files, or none. A document replaces the whole
definition of its name; what it leaves out gets its default.

--dry-run checks the documents by themselves, without a controller; what they
refer to is only checked by applying them.`,
		Example: "  controller apply -f queues.yaml -f intake.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return cli.Usage(errors.New("-f FILE is missing"))
			}
			docs, err := a.readDefinitions(files)
			if err != nil {
				return err
			}
			if dryRun {
				return a.printChecked(docs)
			}
			text, err := joinDefinitions(docs)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			changes, err := c.Apply(cmd.Context(), text)
			if err != nil {
				return err
			}
			return a.printer().Changes(changes)
		},
	}
	c.Flags().StringArrayVarP(&files, "filename", "f", nil, "`file` with YAML or JSON documents, - for standard input; may be repeated")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only check the files")
	return c
}

// readDefinitions reads and checks all files, so that mistakes are told with
// file, line and column before anything is sent.
func (a *app) readDefinitions(files []string) ([]definition.Document, error) {
	var docs []definition.Document
	var errs []error
	for _, file := range files {
		text, err := a.readFile(file)
		if err != nil {
			return nil, err
		}
		found, err := definition.Parse(file, text)
		errs = append(errs, err)
		docs = append(docs, found...)
	}
	return docs, errors.Join(errs...)
}

// readFile reads a file, or standard input for "-".
func (a *app) readFile(file string) ([]byte, error) {
	if file == "-" {
		text, err := io.ReadAll(a.In)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return text, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return text, nil
}

// joinDefinitions writes documents as one stream of JSON documents.
func joinDefinitions(docs []definition.Document) ([]byte, error) {
	var text []byte
	for _, doc := range docs {
		normal, err := doc.Normal()
		if err != nil {
			return nil, err
		}
		text = append(append(text, normal...), '\n')
	}
	return text, nil
}

func (a *app) printChecked(docs []definition.Document) error {
	type checked struct {
		Kind definition.Kind `json:"kind"`
		Name string          `json:"name"`
		File string          `json:"file"`
		Line int             `json:"line"`
	}
	list := []checked{}
	t := cli.Table{Header: []string{"kind", "name", "where"}, Foot: "nothing was applied"}
	for _, d := range docs {
		list = append(list, checked{d.Kind, d.Name(), d.File, d.Line})
		t.Row(d.Kind, d.Name(), fmt.Sprintf("%s:%d", d.File, d.Line))
	}
	return a.printer().Print(list, t)
}

// kindOf reads the kind that a person means, also in the plural.
func kindOf(text string) (string, error) {
	var names []string
	for _, k := range definition.Kinds() {
		if strings.TrimSuffix(strings.ToLower(text), "s") == string(k) {
			return string(k), nil
		}
		names = append(names, string(k))
	}
	return "", cli.Usage(fmt.Errorf("%q is not one of %s", text, strings.Join(names, ", ")))
}

// kindArgs completes the kind of a definition.
func kindArgs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		for _, k := range definition.Kinds() {
			names = append(names, string(k))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get KIND NAME", Short: "Show a queue, lock, agent or workflow as it stands", Args: cobra.ExactArgs(2),
		ValidArgsFunction: kindArgs,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			kind, err := kindOf(args[0])
			if err != nil {
				return err
			}
			found, err := c.Definition(cmd.Context(), kind, args[1])
			if err != nil {
				return err
			}
			return a.printer().Definition(found)
		}),
	}
}

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list KIND", Short: "List queues, locks, agents or workflows", Args: cobra.ExactArgs(1),
		ValidArgsFunction: kindArgs,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			kind, err := kindOf(args[0])
			if err != nil {
				return err
			}
			found, err := c.Definitions(cmd.Context(), kind)
			if err != nil {
				return err
			}
			return a.printer().Definitions(found)
		}),
	}
}

func (a *app) deleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete KIND NAME", Short: "Remove a queue, lock, agent or workflow that nothing needs", Args: cobra.ExactArgs(2),
		ValidArgsFunction: kindArgs,
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			kind, err := kindOf(args[0])
			if err != nil {
				return err
			}
			if err := c.DeleteDefinition(cmd.Context(), kind, args[1]); err != nil {
				return err
			}
			return a.printer().Say(map[string]string{"deleted": kind + "/" + args[1]}, "%s %s is removed", kind, args[1])
		}),
	}
}
