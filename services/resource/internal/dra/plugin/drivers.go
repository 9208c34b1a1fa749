package plugin

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/connectivity"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra/health"
)

// Observer takes how long a call took, and its code.
type Observer func(driver, method, code string, took time.Duration)

// Owner is the goroutine that all of Drivers belongs to; loop.Loop is one.
type Owner interface {
	// Do gives f to the owner. It reports whether the owner took it before ctx ended.
	Do(ctx context.Context, f func()) bool
	// Go runs f in a goroutine of its own, for which the owner waits.
	Go(f func())
}

// Ports are what drivers are spoken to with. Arrived and Health are called in the owner's goroutine.
type Ports struct {
	Owner   Owner
	Dial    Dialer
	Observe Observer
	// Arrived takes a driver that can be called since now.
	Arrived func(driver string)
	// Health takes what a driver reports.
	Health func(driver string, list []health.Report)
	Log    *slog.Logger
}

// Drivers are the DRA drivers that are registered.
type Drivers struct {
	ports Ports
	// clients are those of a driver's plugins, the newest first.
	clients map[string][]*Client
}

// New are no drivers.
func New(ports Ports) *Drivers { return &Drivers{ports: ports, clients: map[string][]*Client{}} }

// Set takes all plugins that are registered. One that registers again is dialed again. They are listened to until ctx
// ends.
func (d *Drivers) Set(ctx context.Context, plugins map[string]topic.Plugin) {
	now := map[string][]*Client{}
	var came []string
	for _, p := range plugins {
		if p.Type != topic.DRAPlugin {
			continue
		}
		for _, at := range append([]topic.PluginEndpoint{p.PluginEndpoint}, p.Others...) {
			c := d.find(p.Name, at)
			if c == nil {
				c = d.dial(ctx, p.Name, at)
			}
			if c != nil {
				now[p.Name] = append(now[p.Name], c)
			}
		}
		if len(d.clients[p.Name]) == 0 && len(now[p.Name]) > 0 {
			came = append(came, p.Name)
		}
	}
	for name, list := range d.clients {
		for _, c := range list {
			if !slices.Contains(now[name], c) {
				c.retire()
			}
		}
	}
	d.clients = now
	slices.Sort(came)
	for _, name := range came {
		d.ports.Arrived(name)
	}
}

func (d *Drivers) find(name string, at topic.PluginEndpoint) *Client {
	for _, c := range d.clients[name] {
		if c.at.Endpoint == at.Endpoint && c.at.Instance == at.Instance && slices.Equal(c.at.Versions, at.Versions) {
			return c
		}
	}
	return nil
}

func (d *Drivers) dial(ctx context.Context, name string, at topic.PluginEndpoint) *Client {
	c, err := newClient(name, at, d.ports.Dial, d.ports.Observe)
	if err != nil {
		d.ports.Log.Error("a DRA driver that is registered can't be used", "driver", name, "endpoint", at.Endpoint,
			"error", err)
		return nil
	}
	ctx, c.stop = context.WithCancel(ctx)
	d.ports.Owner.Go(func() { d.watch(ctx, c) })
	d.ports.Owner.Go(func() { d.listen(ctx, c) })
	return c
}

// Close ends the connections to all drivers.
func (d *Drivers) Close() {
	for _, list := range d.clients {
		for _, c := range list {
			c.retire()
		}
	}
	d.clients = map[string][]*Client{}
}

// watch keeps the plugin connected, and tells the owner whether it is.
func (d *Drivers) watch(ctx context.Context, c *Client) {
	told := false
	for {
		state := c.conn.GetState()
		if state == connectivity.Idle {
			c.conn.Connect()
		}
		if ready := state == connectivity.Ready; ready != told {
			told = ready
			d.ports.Owner.Do(ctx, func() { d.changed(c, ready) })
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

func (d *Drivers) changed(c *Client, connected bool) {
	c.connected = connected
	d.ports.Log.Debug("connection to a DRA driver", "driver", c.driver, "endpoint", c.at.Endpoint, "connected", connected)
	if connected && slices.Contains(d.clients[c.driver], c) {
		d.ports.Arrived(c.driver)
	}
}

// Registered reports whether a driver has a plugin.
func (d *Drivers) Registered(name string) bool { return len(d.clients[name]) > 0 }

// Connected are the drivers that are registered; the value is whether one of the driver's plugins is connected.
func (d *Drivers) Connected() map[string]bool {
	all := make(map[string]bool, len(d.clients))
	for name, list := range d.clients {
		all[name] = slices.ContainsFunc(list, func(c *Client) bool { return c.connected })
	}
	return all
}

// best is the driver's newest plugin that is connected, or else its newest one; nil where it has none.
func (d *Drivers) best(name string) *Client {
	list := d.clients[name]
	if len(list) == 0 {
		return nil
	}
	if i := slices.IndexFunc(list, func(c *Client) bool { return c.connected }); i >= 0 {
		return list[i]
	}
	return list[0]
}

// Acquire is the plugin to call, for the caller to release; nil where the driver isn't registered.
func (d *Drivers) Acquire(name string) *Client {
	c := d.best(name)
	if c != nil {
		c.users++
	}
	return c
}

// Abandon ends the use of a client whose owner has ended. It may be called from any goroutine.
func (*Drivers) Abandon(c *Client) { _ = c.conn.Close() }

// Release ends the use of a client.
func (*Drivers) Release(c *Client) {
	if c.users--; c.users == 0 && c.retired {
		_ = c.conn.Close()
	}
}
