-- The five tables of the scoreboard.
--
-- Indexes that an earlier design had and that are left out, each because another one serves the same look-ups:
--   users(username), users(email)       the unique indexes on lower(username) and lower(email) do, without regard to case
--   scores(total_score DESC)            is the beginning of idx_scores_leaderboard
--   scores(user_id)                     is what the constraint scores_user_unique already keeps

CREATE TABLE users (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    username VARCHAR(50) NOT NULL,
    email VARCHAR(255) NOT NULL,
    password_hash VARCHAR(255) NOT NULL,
    avatar_url VARCHAR(500),
    created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now()
);

-- Anna and anna are one name, and so are their addresses.
CREATE UNIQUE INDEX idx_users_username ON users (lower(username));
CREATE UNIQUE INDEX idx_users_email ON users (lower(email));

CREATE TABLE scores (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    total_score BIGINT NOT NULL DEFAULT 0,
    score_first_reached_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
    CONSTRAINT scores_user_unique UNIQUE (user_id),
    CONSTRAINT scores_non_negative CHECK (total_score >= 0),
    -- 2^53 - 1: beyond it Redis and JSON readers no longer tell neighbours apart.
    CONSTRAINT scores_exact CHECK (total_score <= 9007199254740991)
);

-- The order of the board. The user id makes it total, so that a rank is one player's, and the same in Redis.
CREATE INDEX idx_scores_leaderboard ON scores (total_score DESC, score_first_reached_at ASC, user_id DESC);

CREATE TABLE sessions (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    token_hash VARCHAR(64) NOT NULL,
    refresh_hash VARCHAR(64),
    -- The refresh token before: if it comes again, somebody has a copy of it.
    previous_refresh_hash VARCHAR(64),
    ip_address INET,
    user_agent VARCHAR(500),
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
    revoked_at TIMESTAMP WITH TIME ZONE
);

CREATE INDEX idx_sessions_user_id ON sessions (user_id);
CREATE UNIQUE INDEX idx_sessions_token_hash ON sessions (token_hash);
CREATE UNIQUE INDEX idx_sessions_refresh_hash ON sessions (refresh_hash) WHERE refresh_hash IS NOT NULL;
CREATE INDEX idx_sessions_previous_refresh_hash ON sessions (previous_refresh_hash) WHERE previous_refresh_hash IS NOT NULL;
CREATE INDEX idx_sessions_expires_at ON sessions (expires_at);

CREATE TABLE score_events (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    -- Nullable, so that the history outlives the account that it was of.
    user_id UUID REFERENCES users (id) ON DELETE SET NULL,
    action_token_hash VARCHAR(64) NOT NULL,
    action_id VARCHAR(100) NOT NULL,
    score_delta INTEGER NOT NULL,
    score_before BIGINT NOT NULL,
    score_after BIGINT NOT NULL,
    metadata JSONB NOT NULL DEFAULT '{}',
    client_info JSONB NOT NULL DEFAULT '{}',
    created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now()
);

-- The id at its end makes the order of a history total, so that its pages neither repeat nor skip an event.
CREATE INDEX idx_score_events_user_created ON score_events (user_id, created_at DESC, id DESC);
-- Unique: one token is one event, whatever else fails.
CREATE UNIQUE INDEX idx_score_events_action_token ON score_events (action_token_hash);
CREATE INDEX idx_score_events_created ON score_events (created_at);

CREATE TABLE consumed_tokens (
    token_hash VARCHAR(64) PRIMARY KEY,
    user_id UUID NOT NULL,
    consumed_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    -- The answer that was given, so that whoever sends the token again gets the same.
    response TEXT
);

CREATE INDEX idx_consumed_tokens_expires ON consumed_tokens (expires_at);
