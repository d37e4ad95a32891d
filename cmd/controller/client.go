package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/siding-dev/siding/client"
	"github.com/siding-dev/siding/internal/cli"
	"github.com/siding-dev/siding/internal/config"
)

// client makes the client of the controllers that the flags and the
// environment name.
func (a *app) client() (*client.Client, error) {
	urls := a.urls
	if len(urls) == 0 && os.Getenv(urlEnv) != "" {
		urls = strings.Split(os.Getenv(urlEnv), ",")
	}
	if len(urls) == 0 {
		urls = []string{"http://" + config.DefaultListen}
	}
	c, err := client.New(client.Config{URLs: urls, Token: a.secret(), OnBehalfOf: a.onBehalfOf})
	if err != nil {
		return nil, cli.Usage(err)
	}
	return c, nil
}

// talk makes the RunE of a command that asks a controller.
func (a *app) talk(run func(cmd *cobra.Command, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.client()
		if err != nil {
			return err
		}
		return run(cmd, c, args)
	}
}
