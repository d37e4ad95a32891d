package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/cli"
)

func (a *app) attachmentCommand() *cobra.Command {
	return group("attachment", "Send, receive and decide about attachments",
		a.attachmentListCommand(), a.attachmentPutCommand(), a.attachmentGetCommand(), a.attachmentCompleteCommand(),
		a.attachmentExpectCommand(), a.attachmentDiscardCommand())
}

func (a *app) attachmentListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list ORDER", Short: "List the attachments of an order", Args: cobra.ExactArgs(1),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			list, err := c.Attachments(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.printer().Attachments(list)
		}),
	}
}

func (a *app) attachmentPutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "put ORDER NAME FILE", Short: "Send the bytes of an attachment; - reads standard input", Args: cobra.ExactArgs(3),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) (err error) {
			source, size, err := a.openFile(args[2])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, source.Close()) }()
			info, err := c.Upload(cmd.Context(), args[0], args[1], source, size)
			if err != nil {
				return err
			}
			return a.printer().Attachments([]client.Attachment{info})
		}),
	}
}

func (a *app) attachmentGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get ORDER NAME [FILE]", Short: "Receive the bytes of an attachment, to standard output or a new file", Args: cobra.RangeArgs(2, 3),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) (err error) {
			body, _, err := c.Download(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, body.Close()) }()
			out := a.Out
			if len(args) == 3 && args[2] != "-" {
				// A file that is there may be what somebody still needs.
				file, err := os.OpenFile(args[2], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
				if err != nil {
					return cli.Usage(err)
				}
				n, err := io.Copy(file, body)
				if err = errors.Join(err, file.Close()); err != nil {
					return errors.Join(fmt.Errorf("receive %s: %w", args[1], err), os.Remove(args[2]))
				}
				return a.printer().Say(map[string]any{"file": args[2], "size": n}, "%s: %s", args[2], cli.Size(n))
			}
			if _, err := io.Copy(out, body); err != nil {
				return fmt.Errorf("receive %s: %w", args[1], err)
			}
			return nil
		}),
	}
}

func (a *app) attachmentCompleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "complete ORDER NAME", Short: "Mark an attachment complete that states neither size nor hash", Args: cobra.ExactArgs(2),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			list, err := c.CompleteAttachment(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return a.printer().Attachments(list)
		}),
	}
}

func (a *app) attachmentExpectCommand() *cobra.Command {
	var size int64
	var hash, reason string
	c := &cobra.Command{
		Use: "expect ORDER NAME", Short: "Add an expected attachment to an order that has not started", Args: cobra.ExactArgs(2),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			expected := client.NewAttachment{Name: args[1], SHA256: hash}
			if cmd.Flags().Changed("size") {
				expected.Size = &size
			}
			list, err := c.Expect(cmd.Context(), args[0], expected, reason)
			if err != nil {
				return err
			}
			return a.printer().Attachments(list)
		}),
	}
	c.Flags().Int64Var(&size, "size", 0, "size in `bytes`")
	c.Flags().StringVar(&hash, "sha256", "", "SHA-256 in `hex`adecimal")
	c.Flags().StringVar(&reason, "reason", "", "why; recorded")
	return c
}

func (a *app) attachmentDiscardCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "discard ORDER NAME", Short: "Throw the bytes of an attachment away; needs --reason", Args: cobra.ExactArgs(2),
		RunE: a.talk(func(cmd *cobra.Command, c *client.Client, args []string) error {
			list, err := c.Discard(cmd.Context(), args[0], args[1], reason)
			if err != nil {
				return err
			}
			return a.printer().Attachments(list)
		}),
	}
	c.Flags().StringVar(&reason, "reason", "", "why; recorded")
	return c
}
