package embed

import (
	"github.com/nats-io/nats-server/v2/server"

	"kubelot.dev/bus/internal/layout"
)

// permissions are the NATS permissions that hold m to its contract.
func permissions(m Member) *server.Permissions {
	publish := append([]string{}, m.Publishes...)
	publish = append(publish, m.Calls...)
	for _, pattern := range m.Publishes {
		publish = append(publish, layout.ReplacePrefix+pattern)
	}
	if m.ReadsAll {
		publish = append(publish, readRights(layout.StreamState, ">")...)
		publish = append(publish, readRights(layout.StreamOwn, ">")...)
		publish = append(publish, "$JS.API.DIRECT.GET."+layout.StreamState+".>", "$JS.API.DIRECT.GET."+layout.StreamOwn+".>")
		publish = append(publish, readRights(layout.StreamHistory, layout.HistoryPrefix+">")...)
		publish = append(publish, readRights(layout.StreamEvent, ">")...)
	}
	for _, pattern := range m.ReadsState {
		publish = append(publish, readRights(layout.StreamState, pattern)...)
		publish = append(publish, readRights(layout.StreamOwn, pattern)...)
		publish = append(publish, "$JS.API.DIRECT.GET."+layout.StreamState+"."+pattern,
			"$JS.API.DIRECT.GET."+layout.StreamOwn+"."+pattern)
		publish = append(publish, readRights(layout.StreamHistory, layout.HistoryPrefix+pattern)...)
	}
	for _, pattern := range m.ReadsEvent {
		publish = append(publish, readRights(layout.StreamEvent, pattern)...)
	}
	if m.ReadsAll || len(m.ReadsState)+len(m.ReadsEvent) > 0 {
		// To find out which stream keeps a subject, and the positions of durable readers.
		publish = append(publish,
			"$JS.API.STREAM.INFO."+layout.StreamState, "$JS.API.STREAM.INFO."+layout.StreamOwn,
			"$JS.API.STREAM.INFO."+layout.StreamHistory, "$JS.API.STREAM.INFO."+layout.StreamEvent,
			"$JS.API.DIRECT.GET."+layout.StreamPosition+".position."+m.Name+".>",
			"position."+m.Name+".>")
	}
	// The server itself could note to whom a daemon may reply. But it would do so for each message of a stream too, which
	// has a reply subject for acknowledgements. That would take some hundred bytes per message, for minutes.
	for _, call := range m.Serves {
		publish = append(publish, "_REPLY.*."+call+".*")
	}
	subscribe := append([]string{"_INBOX." + m.Name + ".>"}, m.Serves...)
	if len(m.Calls) > 0 {
		subscribe = append(subscribe, "_REPLY."+m.Name+".>")
	}
	p := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: publish},
		Subscribe: &server.SubjectPermission{Allow: subscribe},
	}
	if len(publish) == 0 {
		p.Publish.Deny = []string{">"} // an empty list would allow everything
	}
	return p
}

// readRights are the requests that a reader of pattern sends. The server holds a consumer's filter to
// the one in the request's subject, so the subject is what limits the reader.
func readRights(stream, pattern string) []string {
	return []string{
		"$JS.API.CONSUMER.CREATE." + stream + ".*." + pattern,
		"$JS.FC." + stream + ".>",
	}
}
