package embed

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// answerWithin is how long a daemon may take to answer a call.
const answerWithin = 10 * time.Minute

// permissions are the NATS permissions that hold m to its contract.
func permissions(m Member) *server.Permissions {
	publish := append([]string{}, m.Publishes...)
	publish = append(publish, m.Calls...)
	if m.ReadsAll {
		publish = append(publish, readRights(streamState, ">")...)
		publish = append(publish, readRights(streamEvent, ">")...)
	}
	for _, pattern := range m.ReadsState {
		publish = append(publish, readRights(streamState, pattern)...)
	}
	for _, pattern := range m.ReadsEvent {
		publish = append(publish, readRights(streamEvent, pattern)...)
	}
	if m.ReadsAll || len(m.ReadsState)+len(m.ReadsEvent) > 0 {
		// To find out which stream keeps a subject, and the positions of durable readers.
		publish = append(publish,
			"$JS.API.STREAM.INFO."+streamState, "$JS.API.STREAM.INFO."+streamEvent,
			"$JS.API.DIRECT.GET."+streamPosition+".position."+m.Name+".>",
			"position."+m.Name+".>")
	}
	p := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: publish},
		Subscribe: &server.SubjectPermission{Allow: append([]string{"_INBOX." + m.Name + ".>"}, m.Serves...)},
	}
	if len(publish) == 0 {
		p.Publish.Deny = []string{">"} // an empty list would allow everything
	}
	if len(m.Serves) > 0 {
		p.Response = &server.ResponsePermission{MaxMsgs: 1, Expires: answerWithin}
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
