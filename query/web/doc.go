// Package web is the HTTP door: JSON under /v1/ for what NATS clients ask on
// tidemark.<query>, and for events. It translates, and holds no state and no rules.
//
//	GET /v1/get/post/42,43?columns=like ─► {"counter":"post","ids":["42","43"],"columns":["like"]}
//	                                             │ Door.Ask: query/service, in this process
//	200, the same JSON as over NATS ◄────────────┘ or problem+json with the service's code
//
// [Handler] makes the door of [Options]. routes.go is the table of what there is:
// path, parameters, endpoint. translate.go makes a request of an HTTP one, body.go reads bodies, answer.go an
// HTTP answer of a reply, with its ETag. events.go takes events, openapi.go writes the
// table as an OpenAPI document. Who may do what is the caller's to say ([Role]).
//
// All of it may be called concurrently. The only thing that is remembered between
// requests is which answers were given lately (given.go): a cache, with a bound, that
// lets a poll with nothing new end with 304. It has the only lock.
package web
