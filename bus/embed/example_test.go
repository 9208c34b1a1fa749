package embed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/embed"
	busnats "kubelot.dev/bus/nats"
	"kubelot.dev/bus/topic"
)

// The bus as kubelot-bus runs it: a server on a unix socket, with a key and permissions for each daemon of the crew.
func Example() {
	dir, err := os.MkdirTemp("", "bus-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	options := embed.DefaultOptions(dir)
	options.Log = slog.New(slog.DiscardHandler)
	if options.Crew, err = embed.BuiltinCrew(); err != nil {
		fmt.Println(err)
		return
	}
	server, err := embed.New(options)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-server.Ready()

	connect := func(daemon string) *bus.Conn {
		transport, err := busnats.Dial(ctx, busnats.Options{
			Socket: options.Socket, KeyFile: embed.KeyFile(options.KeyDir, daemon), Daemon: daemon, Log: options.Log,
		})
		if err != nil {
			panic(err)
		}
		return bus.NewConn(transport, daemon, options.Log)
	}
	gc, lease := connect("gc"), connect("lease")
	defer gc.Close()
	defer lease.Close()

	writer := topic.NodePressure.Writer(gc)
	pressure := topic.Pressure{Disk: true, Message: "nodefs is full"}
	if err := errors.Join(writer.Set("", pressure), writer.Flush(ctx)); err != nil {
		fmt.Println(err)
	}
	values, err := topic.NodePressure.Read(ctx, lease)
	fmt.Println(values[""].Disk, values[""].Message, err)
	// Output: true nodefs is full <nil>
}
