package embed

import "github.com/nats-io/nats-server/v2/server"

// permissions are the NATS permissions that hold m to its contract.
func permissions(m Member) *server.Permissions {
	publish := append([]string{}, m.Publishes...)
	publish = append(publish, m.Calls...)
	if m.ReadsAll {
		publish = append(publish, readRights(streamState, ">")...)
		publish = append(publish, readRights(streamOwn, ">")...)
		publish = append(publish, "$JS.API.DIRECT.GET."+streamState+".>", "$JS.API.DIRECT.GET."+streamOwn+".>")
		publish = append(publish, readRights(streamHistory, historyPrefix+">")...)
		publish = append(publish, readRights(streamEvent, ">")...)
	}
	for _, pattern := range m.ReadsState {
		publish = append(publish, readRights(streamState, pattern)...)
		publish = append(publish, readRights(streamOwn, pattern)...)
		publish = append(publish, "$JS.API.DIRECT.GET."+streamState+"."+pattern, "$JS.API.DIRECT.GET."+streamOwn+"."+pattern)
		publish = append(publish, readRights(streamHistory, historyPrefix+pattern)...)
	}
	for _, pattern := range m.ReadsEvent {
		publish = append(publish, readRights(streamEvent, pattern)...)
	}
	if m.ReadsAll || len(m.ReadsState)+len(m.ReadsEvent) > 0 {
		// To find out which stream keeps a subject, and the positions of durable readers.
		publish = append(publish,
			"$JS.API.STREAM.INFO."+streamState, "$JS.API.STREAM.INFO."+streamOwn,
			"$JS.API.STREAM.INFO."+streamHistory, "$JS.API.STREAM.INFO."+streamEvent,
			"$JS.API.DIRECT.GET."+streamPosition+".position."+m.Name+".>",
			"position."+m.Name+".>")
	}
	// The server could note itself to whom a daemon may reply. But then it does so for each message of a stream too, whose
	// reply subject is for acknowledgements: some hundred bytes each, for minutes.
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
